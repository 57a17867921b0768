-- Take the table lock of any writer early: no queue can be deleted between its lookup and the insert.
lock table tarry.message in row exclusive mode
