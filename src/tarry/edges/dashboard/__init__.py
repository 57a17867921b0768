"""The dashboard: server-rendered pages on a store, at /dashboard of a broker or mounted into another application.

To add a screen:
1. `screens/<subject>.py` with `screen = Screen(…)`, which is the entry in the navigation, and its pages and actions:
   `@screen.page(path)` for an async function of a `View` that returns `view.page(template, title, …)`, and
   `@screen.form(path, Action.…, name)` for what a form does: it returns `view.done(sentence, path)`. The right that is
   checked is that of the /v1 route which does the same; a path with `{queue}` is checked for that queue, and other pages
   leave out what `view.sees(queue)` denies. Actions are audited.
2. `templates/<subject>/<page>.html` extends `layout.html` and uses the macros of `macros.html`.
3. The module in `screens/__init__.py`.

A page with a list puts its rows into a `Listing` and names it `listing=`: the same path then also responds with `.json`
and `.csv`. Reads are bounded: pages by key, counts with a limit. After `page_for` the statement of a page is cancelled.
"""
