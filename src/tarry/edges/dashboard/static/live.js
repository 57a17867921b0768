// One live stream per browser. The tab that holds a Web Lock has the connection and passes events on by a BroadcastChannel;
// a hidden tab gives the lock back after a while. When something changes that this page shows, the page fetches itself
// again and morphs its content, which keeps focus, selection, open panels and scroll positions.

const prefix = document.body.dataset.prefix;
const chip = document.querySelector("[data-live]");
const text = document.querySelector("[data-live-text]");
const channel = "BroadcastChannel" in window ? new BroadcastChannel(`tarry${prefix}`) : null;
const HIDDEN_FOR_MS = 30_000;
const LEAST_MS = 1_000; // between two refreshes of this page
const SILENT_MS = 40_000; // the server pings every 15 s

let paused = sessionStorage.getItem("tarry-paused") === "1";
let release = null; // gives the lock back
let source = null;
let trying = 0; // the timer of the next try
let tries = 0; // in a row without success
let state = { name: "connecting", since: Date.now(), next: 0 };
let lastReceived = 0;
let lastRefresh = 0;
let timer = null;
let stale = false;

function show() {
  if (!chip) return;
  const shown = paused ? "paused" : state.name;
  const since = new Date(state.since).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  const wait = Math.ceil((state.next - Date.now()) / 1_000);
  const words = { live: "Live", paused: "Paused", connecting: "Connecting", reconnecting: wait > 0 ? `Reconnecting ${wait} s` : "Reconnecting", offline: `Offline since ${since}` }[shown];
  const isNew = chip.dataset.state !== shown;
  chip.dataset.state = shown;
  if (text.textContent !== words) text.textContent = words;
  if (isNew) announce(`Live updates: ${words}`);
}

let announced = 0;
function announce(sentence) {
  const region = document.getElementById("announce");
  if (!region || Date.now() - announced < 30_000) return;
  announced = Date.now();
  region.textContent = sentence;
}

function setState(name, next = 0) {
  if (name !== state.name) {
    // The time of an outage is that of its beginning.
    const since = name === "offline" && state.name === "reconnecting" ? state.since : Date.now();
    state = { name, since };
  }
  state.next = next; // when the next try is
  show();
}

function receive(message) {
  lastReceived = Date.now();
  if (message.state) {
    const was = state.name;
    setState(message.state, message.next);
    if (message.state === "live" && (was === "reconnecting" || was === "offline")) changed(null); // something may have been missed
  }
  if (message.topics) changed(message);
}

function send(message) {
  receive(message);
  channel?.postMessage(message);
}

function connect() {
  source = new EventSource(`${prefix}/live`);
  source.onopen = () => { tries = 0; send({ state: "live" }); };
  source.onerror = () => { // the next try is ours, so that the page can show when it is
    const gone = source?.readyState === EventSource.CLOSED || state.name === "offline";
    const wait = Math.min(++tries, 5) * 1_000;
    disconnect();
    trying = setTimeout(connect, wait);
    send({ state: gone || Date.now() - state.since > 10_000 && state.name === "reconnecting" ? "offline" : "reconnecting", next: Date.now() + wait });
  };
  source.addEventListener("changed", (event) => send(JSON.parse(event.data)));
}

function disconnect() {
  clearTimeout(trying);
  source?.close();
  source = null;
}

function lead() {
  if (release || document.hidden) return;
  if (!navigator.locks || !channel) { // an insecure context: one stream per tab
    release = () => {};
    connect();
    return;
  }
  let free;
  const held = new Promise((resolve) => { free = resolve; });
  const waiting = new AbortController();
  release = () => { waiting.abort(); free(); };
  navigator.locks.request(`tarry-live${prefix}`, { signal: waiting.signal }, () => { connect(); return held; })
    .catch(() => {});
}

function resign() {
  disconnect();
  release?.();
  release = null;
}

// What this page shows: topics, and the one queue that it is about, if any.
function concerns(message) {
  const main = document.getElementById("main");
  const topics = (main?.dataset.topics ?? "").split(" ").filter(Boolean);
  if (message === null) return topics.length > 0;
  const queue = main.dataset.queue;
  const isOfOthers = queue && message.queues.length > 0 && !message.queues.includes(queue);
  return message.topics.some((topic) => topics.includes(topic) && (topic === "clock" || !isOfOthers));
}

function changed(message) {
  if (!concerns(message)) return;
  stale = true;
  schedule();
}

function schedule() {
  if (paused || document.hidden || timer) return;
  const wait = Math.max(0, lastRefresh + LEAST_MS - Date.now());
  timer = setTimeout(refresh, wait);
}

export async function refresh() {
  timer = null;
  if (isBusy()) { timer = setTimeout(refresh, LEAST_MS); return; }
  stale = false;
  lastRefresh = Date.now();
  try {
    const response = await fetch(location.href, { headers: { accept: "text/html", "x-tarry-refresh": "1" } });
    if (response.status === 401) { location.reload(); return; }
    if (!response.ok) return;
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    if (isBusy()) { stale = true; return; } // since the request was sent
    const fresh = page.getElementById("main");
    const main = document.getElementById("main");
    if (!fresh || !main) return;
    fresh.querySelector(".notice[role=status]")?.remove();
    const notice = main.querySelector(".notice[role=status]"); // of the last action: it stays until the next page
    if (notice) fresh.prepend(notice.cloneNode(true));
    await htmx.swap({ text: fresh.outerHTML, target: main, swap: "outerMorph", sourceElement: document.body });
    document.dispatchEvent(new CustomEvent("tarry:refreshed"));
  } catch { /* the chip shows that the server is away */ } finally {
    lastRefresh = Date.now();
    if (stale) schedule();
  }
}

// A click is lost, or hits another row, if its element changes between press and release.
let isPressed = false;
addEventListener("pointerdown", () => { isPressed = true; }, true);
for (const name of ["pointerup", "pointercancel", "dragend"]) addEventListener(name, () => { setTimeout(() => { isPressed = false; }); }, true); // after the click
addEventListener("blur", () => { isPressed = false; }); // released outside of the window

// In a dialog or a field of this page, which a refresh would change under the visitor.
function isBusy() {
  const active = document.activeElement;
  return isPressed || document.querySelector("dialog[open]") || active?.closest?.("#main") && active.matches("input:not([type=checkbox]), textarea, select");
}

function toggle() {
  paused = !paused;
  sessionStorage.setItem("tarry-paused", paused ? "1" : "0");
  show();
  if (!paused) { stale = true; schedule(); }
}

let hiding = null;
document.addEventListener("visibilitychange", () => {
  clearTimeout(hiding);
  if (document.hidden) hiding = setTimeout(resign, HIDDEN_FOR_MS);
  else { lead(); if (stale) schedule(); }
});
channel?.addEventListener("message", (event) => receive(event.data));
chip?.addEventListener("click", toggle);
document.addEventListener("tarry:toggle-live", toggle);
window.addEventListener("pagehide", resign);
window.addEventListener("pageshow", (event) => { if (event.persisted) lead(); });
setInterval(() => {
  if (source) channel?.postMessage({ state: state.name });
  else if (lastReceived && Date.now() - lastReceived > SILENT_MS) setState("reconnecting");
}, 10_000);
setInterval(show, 1_000);
show();
lead();
// A tab without the connection learns the state from the one that has it.
if (channel) {
  channel.addEventListener("message", (event) => { if (event.data.hello && source) channel.postMessage({ state: state.name }); });
  channel.postMessage({ hello: true });
}
