// The first steps in a demonstration. Each is ticked once it was done in this browser: a form was sent, or a page was opened.

const prefix = document.body.dataset.prefix;
const box = document.querySelector("[data-steps]");
const store = `tarry-steps${prefix}`;
const HIDDEN = "hidden";
const noted = () => (localStorage.getItem(store) ?? "").split(" ").filter(Boolean);

function note(name) {
  if (!noted().includes(name)) localStorage.setItem(store, [...noted(), name].join(" "));
  show();
}

function show() {
  box.hidden = noted().includes(HIDDEN);
  for (const step of box.querySelectorAll("[data-step]")) {
    const isDone = noted().includes(step.dataset.step);
    step.toggleAttribute("data-is-done", isDone);
    step.querySelector("[data-state]").textContent = isDone ? ", done" : ", to do";
  }
}

function check(path, isVisit) {
  for (const step of box.querySelectorAll("[data-step]")) {
    if ("byVisit" in step.dataset === isVisit && new RegExp(step.dataset.done).test(path)) note(step.dataset.step);
  }
}

if (box) {
  box.querySelector("[data-hide]").addEventListener("click", () => note(HIDDEN));
  document.addEventListener("submit", (event) => { if (event.target.method === "post") check(new URL(event.target.action).pathname, false); });
  check(location.pathname, true);
  show();
}
