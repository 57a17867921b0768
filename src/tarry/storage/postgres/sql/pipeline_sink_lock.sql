-- What any writer takes, taken early: no queue can be deleted between looking it up and storing into it.
lock table tarry.message in row exclusive mode
