// The frame of every page: theme, zone, dialogs, copying, keyboard, and times that stay current.

// On a narrow screen the navigation is one line: the entry of this page is scrolled into it.
const rail = document.querySelector(".rail"), entry = rail?.querySelector("[aria-current]");
if (entry) rail.scrollLeft = entry.offsetLeft - rail.offsetLeft - (rail.clientWidth - entry.offsetWidth) / 2;

const prefix = document.body.dataset.prefix;
const root = document.documentElement;

function remember(name, value) {
  document.cookie = `tarry_${name}=${value}; path=${prefix}/; max-age=31536000; samesite=lax`;
}

// Theme
function switchTheme() {
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  remember("theme", root.dataset.theme);
  document.dispatchEvent(new CustomEvent("tarry:theme"));
}

// Times
const UNITS = [["d", 86_400], ["h", 3_600], ["m", 60], ["s", 1]];

function length(seconds) {
  if (seconds < 1) return `${Math.round(seconds * 1000)}ms`;
  if (seconds < 10) return `${Math.round(seconds * 10) / 10}s`;
  const finest = seconds >= 86_400 ? 3_600 : seconds >= 3_600 ? 60 : 1;
  let rest = Math.round(seconds / finest) * finest;
  return UNITS.map(([unit, size]) => {
    const count = Math.floor(rest / size);
    rest -= count * size;
    return count ? `${count}${unit}` : "";
  }).join("");
}

// How far the clock of the database is ahead of this machine's, as far as that is certain: it was read between the request
// and the response of this page.
function clockSkew() {
  const loaded = performance.getEntriesByType("navigation")[0], origin = Date.now() - performance.now();
  const [first, last] = [origin + (loaded?.requestStart ?? 0), origin + (loaded?.responseStart ?? performance.now())];
  const read = Number(document.body.dataset.now);
  return read < first ? read - first : Math.max(0, read - last);
}
const skew = clockSkew();
const warning = document.querySelector("[data-skew]");
if (warning && Math.abs(skew) > 2_000) {
  warning.textContent = `Clock ${length(Math.abs(skew) / 1000)} ${skew > 0 ? "behind" : "ahead"}`;
  warning.hidden = false;
}

// UTC, the zone of this browser, or that of the schedule whose page this is.
const ownZone = () => document.getElementById("main")?.dataset.ownZone;
const zoneName = () => ({ browser: Intl.DateTimeFormat().resolvedOptions().timeZone, own: ownZone() })[root.dataset.zone] ?? "UTC";

const exact = (at) => `${at.toLocaleString("sv-SE", { timeZone: zoneName() })} ${zoneName()}`;
// The same with the offset of its zone. With it, browsers do not pad the hours.
const short = (at) => {
  const timeZone = zoneName();
  const name = at.toLocaleString("sv-SE", { timeZone, timeZoneName: "short" }).split(" ").at(-1);
  return `${at.toLocaleString("sv-SE", { timeZone })} ${name}`;
};

function tick() {
  const now = Date.now() + skew;
  for (const element of document.querySelectorAll("time[data-when]")) {
    const at = new Date(element.dateTime);
    const seconds = (at - now) / 1000;
    const relative = Math.abs(seconds) < 0.5 ? "now" : seconds > 0 ? `in ${length(seconds)}` : `${length(-seconds)} ago`;
    const words = showsExact() ? short(at) : relative;
    if (element.textContent !== words) element.textContent = words;
  }
}

const showsExact = () => localStorage.getItem("tarry-exact") === "1";

function switchExact() {
  localStorage.setItem("tarry-exact", showsExact() ? "" : "1");
  tick();
}

function labelTimes() {
  for (const element of document.querySelectorAll("time[data-when]")) element.title = exact(new Date(element.dateTime));
}

function switchZone() {
  root.dataset.zone = { utc: "browser", browser: ownZone() ? "own" : "utc" }[root.dataset.zone] ?? "utc";
  if (root.dataset.zone !== "own") remember("zone", root.dataset.zone);
  for (const button of document.querySelectorAll("[data-zone-switch]")) button.textContent = { utc: "UTC", browser: "Local" }[root.dataset.zone] ?? ownZone();
  labelTimes();
  tick();
  document.dispatchEvent(new CustomEvent("tarry:zone"));
}

// Dialogs, copying, selection
async function copy(button) {
  const code = button.closest(".copy-block")?.querySelector("code") ?? document.getElementById(button.dataset.copy);
  try {
    await navigator.clipboard.writeText(code.textContent);
  } catch { // an insecure context has no clipboard
    const range = document.createRange();
    range.selectNodeContents(code);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    document.execCommand("copy");
  }
  const before = button.textContent;
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = before; }, 1_500);
}

// The first field has the focus; by itself, the button that closes would.
function openDialog(dialog) {
  dialog?.showModal();
  dialog?.querySelector("form[method=post] :is(input:not([type=hidden], [type=radio], [type=checkbox]), select, textarea)")?.focus();
}

document.addEventListener("click", (event) => {
  const target = event.target.closest?.("[data-open], [data-copy], [data-theme-switch], [data-zone-switch]");
  for (const open of document.querySelectorAll("details.copy-as[open], details.own-range[open]")) if (!open.contains(event.target)) open.open = false;
  if (!target && event.target.matches?.("time[data-when]") && !event.target.closest("a, button, summary")) switchExact();
  if (!target) return;
  if ("open" in target.dataset) openDialog(document.getElementById(target.dataset.open));
  else if ("copy" in target.dataset) copy(target);
  else if ("themeSwitch" in target.dataset) switchTheme();
  else switchZone();
});

// A second click on a button that sends a form would do the same twice. The page that comes next has other forms; this one
// may be shown again by the button "back".
let sent = null;
document.addEventListener("submit", (event) => {
  if (event.target.method !== "post" || event.defaultPrevented) return;
  if (event.target === sent) event.preventDefault();
  sent = event.target;
});
addEventListener("pageshow", () => { sent = null; });

// What destroys needs the name to be typed.
function checkTyped(input) {
  const button = input.form?.querySelector("button.danger, button.primary");
  if (button) button.disabled = input.value !== input.dataset.mustEqual;
}
document.addEventListener("input", (event) => { if (event.target.dataset?.mustEqual) checkTyped(event.target); });
for (const input of document.querySelectorAll("[data-must-equal]")) checkTyped(input);

let lastChecked = null;
document.addEventListener("change", (event) => {
  const box = event.target;
  if (box.matches?.("[data-select-all]")) {
    for (const row of box.closest("table").querySelectorAll("tbody [data-select]")) row.checked = box.checked;
  } else if (box.matches?.("[data-keys-off]")) {
    localStorage.setItem("tarry-keys-off", box.checked ? "1" : "");
  }
  if (box.matches?.("[data-select-all], [data-select]")) document.dispatchEvent(new CustomEvent("tarry:selected"));
});
document.addEventListener("click", (event) => {
  if (!event.target.matches?.("[data-select]")) return;
  const boxes = [...document.querySelectorAll("[data-select]")];
  if (event.shiftKey && lastChecked) {
    const [from, to] = [boxes.indexOf(lastChecked), boxes.indexOf(event.target)].sort((a, b) => a - b);
    for (const box of boxes.slice(from, to + 1)) box.checked = event.target.checked;
  }
  lastChecked = event.target;
});

// Keyboard
let going = 0;
const rows = () => [...document.querySelectorAll("table.rows tbody tr")];

function move(by) {
  const all = rows();
  if (!all.length) return;
  const at = all.findIndex((row) => "current" in row.dataset);
  const next = all[Math.max(0, Math.min(all.length - 1, at + by))];
  for (const row of all) delete row.dataset.current;
  next.dataset.current = "";
  next.scrollIntoView({ block: "nearest" });
}

const current = () => document.querySelector("tr[data-current]");

function select(isRange) {
  current()?.querySelector("[data-select]")?.dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true, shiftKey: isRange }));
}

const KEYS = {
  "/": () => document.getElementById("search")?.focus(),
  "?": () => document.getElementById("help")?.showModal(),
  j: () => move(1),
  k: () => move(-1),
  t: switchTheme,
  z: switchZone,
  p: () => document.dispatchEvent(new CustomEvent("tarry:toggle-live")),
  Enter: () => current()?.querySelector("a")?.click(),
  x: () => select(false),
  X: () => select(true),
  a: switchExact,
  ".": () => { const row = current(); if (row) document.dispatchEvent(new CustomEvent("tarry:row-menu", { detail: row })); },
  e: () => (current()?.querySelector("[aria-keyshortcuts=e]") ?? document.querySelector("main .page-head [aria-keyshortcuts=e]"))?.click(),
};

document.addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key === "k") { event.preventDefault(); document.dispatchEvent(new CustomEvent("tarry:palette")); return; }
  if (event.ctrlKey || event.metaKey || event.altKey || localStorage.getItem("tarry-keys-off")) return;
  if (event.target.matches?.("input:not([type=checkbox]), textarea, select, [contenteditable]") || document.querySelector("dialog[open]")) return;
  if (event.key === "Enter" && (event.target.matches?.("a, button, summary, input") || !current())) return;
  if (going && Date.now() - going < 1_500) {
    going = 0;
    const link = document.querySelector(`[data-go="${CSS.escape(event.key)}"]`);
    if (link) { event.preventDefault(); link.click(); }
    return;
  }
  if (event.key === "g") { going = Date.now(); return; }
  const run = KEYS[event.key];
  if (run) { event.preventDefault(); run(); }
});
const keysOff = document.querySelector("[data-keys-off]");
if (keysOff) keysOff.checked = Boolean(localStorage.getItem("tarry-keys-off"));

labelTimes();
tick();
setInterval(tick, 1_000);
document.addEventListener("tarry:refreshed", () => { tick(); labelTimes(); });
if (location.hash.length > 1) { // a link to a dialog, which is how pages without scripts name it
  const dialog = document.getElementById(location.hash.slice(1));
  if (dialog instanceof HTMLDialogElement) openDialog(dialog);
}
