// The search box completes qualifiers and their values; the dialog names how many rows are selected.

function complete(input) {
  const list = document.getElementById(input.getAttribute("list"));
  const known = JSON.parse(input.dataset.suggestions);
  const last = /(?:^|\s)([^\s"]*)$/.exec(input.value)?.[1] ?? "";
  const before = input.value.slice(0, input.value.length - last.length);
  const [name, value] = last.split(/:(.*)/s);
  const words = value === undefined
    ? Object.keys(known).filter((word) => word.startsWith(name.toLowerCase())).map((word) => (word === "payload" ? "payload." : `${word}:`))
    : (known[name.toLowerCase()] ?? []).filter((word) => word.startsWith(value)).map((word) => `${name}:${word}`);
  list.replaceChildren(...words.slice(0, 20).map((word) => new Option(before + word, before + word)));
}

document.addEventListener("input", (event) => { if (event.target.id === "query") complete(event.target); });
document.addEventListener("focusin", (event) => { if (event.target.id === "query") complete(event.target); });
if (document.activeElement?.id === "query") complete(document.activeElement); // typed before this script was loaded

function countSelected() {
  const count = document.querySelectorAll("#message-table [data-select]:checked").length;
  const words = count ? `${count} selected` : "none selected";
  for (const element of document.querySelectorAll("[data-selected-count]")) element.textContent = words;
  for (const element of document.querySelectorAll("[data-selected-words]")) element.textContent = `The selected rows: ${count}`;
  const all = document.querySelector('#act-form [name="scope"][value="all"]');
  const selected = document.querySelector('#act-form [name="scope"][value="selected"]');
  if (selected) { selected.disabled = count === 0; (count ? selected : all).checked = true; }
}
for (const name of ["tarry:selected", "tarry:refreshed"]) document.addEventListener(name, countSelected);
countSelected();
