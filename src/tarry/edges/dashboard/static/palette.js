// One dialog with a list to choose from: all that can be done from a page (Ctrl k), or with the current row of a table (.).

const prefix = document.body.dataset.prefix;
const dialog = document.getElementById("palette"), input = dialog.querySelector("input"), list = dialog.querySelector("ul");
let choices = [], matches = [], shown = [], at = 0, finds = false, requested = 0;

const words = (element) => (element.getAttribute("aria-label") || element.innerText || element.textContent).replace(/\s+/g, " ").trim();
const visible = (element) => element.checkVisibility?.() ?? true;
const click = (element, label, kind) => ({ label: label ?? words(element), kind, run: () => element.click() });

function ofPage() {
  const screens = [...document.querySelectorAll(".rail > a")].map((link) => click(link, link.querySelector("span").textContent, "screen"));
  const views = [...document.querySelectorAll("[data-views] li a")].map((link) => click(link, undefined, "view"));
  const actions = [...document.querySelectorAll("main .page-head .buttons > .button, main .page-head .buttons > form > .button")].filter(visible);
  const frame = [["[data-theme-switch]", "Light or dark"], ["[data-zone-switch]", "UTC or local time"], ["[data-live]", "Pause or resume live updates"],
    ["[data-open=save-view]", "Add this page to the views"], ["[data-open=help]", "Keyboard shortcuts"]];
  return [...actions.map((button) => click(button, undefined, "this page")), ...screens, ...views,
    ...frame.flatMap(([selector, label]) => [...document.querySelectorAll(selector)].slice(0, 1).map((button) => click(button, label, "dashboard")))];
}

function ofRow(row) {
  const box = row.querySelector("[data-select]"), code = row.querySelector("code");
  const heads = [...row.closest("table").querySelectorAll("thead th")].map(words);
  const links = [...row.querySelectorAll("a, button")].filter(visible).map((link) =>
    click(link, `${link.matches("a") ? "Open " : ""}${words(link)}`, heads[link.closest("td, th")?.cellIndex] || "row"));
  const copied = code ? [{ label: `Copy ${code.textContent}`, kind: "row", run: () => navigator.clipboard?.writeText(code.textContent) }] : [];
  const acts = !box ? [] : [{ label: box.checked ? "Unselect the row" : "Select the row", kind: "row", run: () => box.click() },
    ...[...document.querySelectorAll("[data-of-selected]")].map((button) => ({ label: words(button), kind: "only this row", run: () => onlyThis(box, button) }))];
  return [...links, ...acts, ...copied];
}

function onlyThis(box, button) {
  for (const other of document.querySelectorAll("[data-select]")) other.checked = other === box;
  document.dispatchEvent(new CustomEvent("tarry:selected"));
  button.click();
}

// Names that begin with the text come first, then those with a word that does.
function place(label, text) {
  const name = label.toLowerCase();
  return name.startsWith(text) ? 0 : name.includes(` ${text}`) ? 1 : 2;
}

function show() {
  const text = input.value.trim().toLowerCase();
  const fitting = [...choices, ...matches].filter((choice) => text.split(/\s+/).every((word) => choice.label.toLowerCase().includes(word)));
  shown = fitting.sort((a, b) => place(a.label, text) - place(b.label, text)).slice(0, 30); // stable
  if (finds && text) shown.push({ label: `Search messages for ${input.value.trim()}`, kind: "search", run: () => go(`/messages?${new URLSearchParams({ q: input.value.trim() })}`) });
  at = Math.max(0, Math.min(at, shown.length - 1));
  list.replaceChildren(...shown.map((choice, index) => {
    const row = document.createElement("li"), kind = document.createElement("small");
    row.id = `choice-${index}`;
    row.role = "option";
    row.setAttribute("aria-selected", String(index === at));
    kind.textContent = choice.kind;
    row.append(choice.label, kind);
    row.addEventListener("click", () => run(choice));
    return row;
  }));
  list.hidden = !shown.length;
  dialog.querySelector("[data-none]").hidden = shown.length > 0;
  input.setAttribute("aria-expanded", String(shown.length > 0));
  if (shown.length) input.setAttribute("aria-activedescendant", `choice-${at}`); else input.removeAttribute("aria-activedescendant");
  document.getElementById(`choice-${at}`)?.scrollIntoView({ block: "nearest" });
}

const go = (path) => location.assign(prefix + path);

function run(choice) {
  dialog.close();
  choice.run();
}

// Queues and schedules are on the server: requested when typing pauses, and only for what is still typed then.
async function find() {
  const text = input.value.trim(), mine = ++requested;
  await new Promise((resolve) => { setTimeout(resolve, 150); });
  if (!finds || !text || mine !== requested) return;
  const response = await fetch(`${prefix}/search.json?${new URLSearchParams({ q: text })}`).catch(() => null);
  const body = response?.ok ? await response.json() : { matches: [] };
  if (mine !== requested) return;
  matches = body.matches.map((row) => ({ label: row.name, kind: row.kind, run: () => go(row.path) }));
  show();
}

function open(title, given, isPage) {
  [choices, matches, finds, at] = [given, [], isPage, 0];
  dialog.querySelector("h2").textContent = title;
  input.value = "";
  dialog.showModal();
  show();
}

input.addEventListener("input", () => { at = 0; matches = []; show(); find(); });
input.addEventListener("keydown", (event) => {
  const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (by && shown.length) { event.preventDefault(); at = (at + by + shown.length) % shown.length; show(); }
  if (event.key === "Enter") { event.preventDefault(); if (shown[at]) run(shown[at]); }
});
document.addEventListener("tarry:palette", () => { if (!document.querySelector("dialog[open]")) open("Go to, or do", ofPage(), true); });
document.addEventListener("tarry:row-menu", (event) => open(`Row: ${words(event.detail.querySelector("a, code") ?? event.detail)}`, ofRow(event.detail), false));
