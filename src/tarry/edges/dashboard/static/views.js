// Saved views: names for addresses of pages, with their search, range and order. Kept in this browser alone, for each key
// that signs in: names of queues and searches are not for the next one.

const prefix = document.body.dataset.prefix;
const box = document.querySelector("[data-views]");
const dialog = document.getElementById("save-view");
const store = `tarry-views${prefix} ${document.body.dataset.visitor}`;

function saved() {
  try {
    const views = JSON.parse(localStorage.getItem(store) ?? "[]");
    return Array.isArray(views) ? views.filter((view) => typeof view?.name === "string" && /^\/(?![/\\])/.test(view.path)) : [];
  } catch { return []; }
}

function keep(views) {
  localStorage.setItem(store, JSON.stringify(views));
  show();
}

const here = () => location.pathname.slice(prefix.length) + location.search;

function show() {
  box.querySelector("ul").replaceChildren(...saved().map((view) => {
    const row = document.createElement("li"), link = document.createElement("a"), remove = document.createElement("button");
    link.href = prefix + view.path;
    link.textContent = view.name;
    if (view.path === here()) link.setAttribute("aria-current", "page");
    remove.type = "button";
    remove.textContent = "×";
    remove.setAttribute("aria-label", `Forget the view ${view.name}`);
    remove.addEventListener("click", () => keep(saved().filter((other) => other.name !== view.name)));
    row.append(link, remove);
    return row;
  }));
}

if (box && dialog) {
  dialog.addEventListener("close", () => {
    const input = dialog.querySelector("input"), name = input.value.trim(), isAdded = dialog.returnValue === "save";
    dialog.returnValue = input.value = "";  // else a dialog that is closed later, without adding, would add again
    if (isAdded && name) keep([...saved().filter((view) => view.name !== name), { name, path: here() }]);
  });
  box.hidden = false;
  show();
}
