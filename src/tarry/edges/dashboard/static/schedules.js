// Schedules and the calendar: the zone of the browser, marks at wrong fields, and clicks on the heat map.

const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
document.cookie = `tarry_browser_zone=${zone}; path=${document.body.dataset.prefix}/; max-age=31536000; samesite=lax`;

// The preview beside the editor: its errors mark their fields.
function markErrors(form, preview) {
  const wrong = new Set([...preview.querySelectorAll("[data-error-for]")].map((item) => item.dataset.errorFor));
  for (const field of form.querySelectorAll("input, select, textarea")) {
    if (wrong.has(field.name)) field.setAttribute("aria-invalid", "true");
    else field.removeAttribute("aria-invalid");
  }
}

const form = document.getElementById("editor");
if (form) {
  const preview = document.getElementById("preview"); // its content is morphed
  new MutationObserver(() => markErrors(form, preview))
    .observe(preview, { childList: true, subtree: true, attributes: true, attributeFilter: ["data-error-for"] });
  const field = form.elements.namedItem("viewer_zone");
  if (field.value !== zone) {
    field.value = zone;
    addEventListener("load", () => document.getElementById("editor-fields").dispatchEvent(new CustomEvent("zone-known")));
  }
}

// On a narrow screen the heat map begins at the present hour, and its days stay beside it.
for (const map of document.querySelectorAll("svg[data-now]")) {
  const box = map.parentElement, scale = map.viewBox.baseVal.width / map.clientWidth;
  // On the root: a refresh of the page would take it away elsewhere.
  box.addEventListener("scroll", () => document.documentElement.style.setProperty("--scrolled", `${box.scrollLeft * scale}px`));
  box.scrollLeft = (Number(map.dataset.now) - 1) * Number(map.dataset.size) / scale;
}

// A click on the heat map opens the cell under it.
document.addEventListener("click", (event) => {
  const map = event.target.closest?.("svg[data-cells]");
  if (!map) return;
  const data = Object.fromEntries(Object.entries(map.dataset).map(([name, value]) => [name, Number(value)]));
  const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(map.getScreenCTM().inverse());
  const column = Math.floor((point.x - data.left) / data.size);
  const row = Math.floor((point.y - data.top) / data.high);
  if (column < 0 || column >= data.columns || row < 0) return;
  const address = new URL(map.dataset.cells, location.href);
  const at = new Date((data.start + (row * data.columns + column) * data.every) * 1000);
  address.searchParams.set("at", at.toISOString().replace(".000", ""));
  location.assign(address);
});
