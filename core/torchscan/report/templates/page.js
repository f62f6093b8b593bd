// The page: one state (report, metric, search), and the parts that follow it.

const state = { model: models[0], metric: page.first };
const panel = document.getElementById("details");
const crumbs = document.getElementById("crumbs");
const searchBox = document.getElementById("search");
const searchStatus = document.getElementById("search-status");

const chart = new Chart(document.getElementById("chart"), { onSelect: showSelected, onZoom: showCrumbs });
const table = new Table(document.getElementById("calls-table"), {
  onSelect(row) {
    const parent = state.model.parent(row);
    const inside = state.model.children[row].length > 0;
    chart.go({ row: inside || parent < 0 ? row : parent, run: null });
    const sector = chart.sectors.find((one) => !one.run && one.row === row);
    if (sector) chart.select(sector);
    else showSelected({ row, run: null });
  },
});
const actions = {
  zoom: (view) => { chart.go(view); chart.element.focus({ preventScroll: true }); },
  reveal: (row) => table.reveal(row),
};

function showSelected(selected) {
  showDetails(panel, state.model, selected, actions);
  document.getElementById("announce").textContent = announcement(selected);
  if (!selected.run) table.choose(selected.row);
}

function announcement({ row, run }) {
  if (run) return `${run.length} calls`;
  const sizes = state.model.sizes(state.metric);
  const { unit } = metrics.get(state.metric);
  const full = sizes ? measuredInFull(sizes.total[row], sizes.totalNumber[row], unit) : "";
  return `${shortened(state.model.title(row), 90)}, ${shortened(state.model.type(row), 60)}, ${full}`;
}

function showCrumbs(view) {
  const items = state.model.line(view.row).map((row) => ({ label: state.model.label(row), view: { row, run: null } }));
  if (view.run) items.push({ label: `${view.run.length} calls`, view });
  crumbs.replaceChildren(...items.map(({ label, view: target }, at) => {
    if (at === items.length - 1) return make("li", { "aria-current": "true" }, name(label, 40));
    const step = button("", () => actions.zoom(target));
    step.append(name(label, 40));
    return make("li", {}, step);
  }));
}

/** Draw everything again: at the root, or where the reader was. */
function refresh(view = { row: 0, run: null }, selected = view.row) {
  const { model, metric } = state;
  const known = model.sizes(metric)?.total[0] === "c" ? "" : "known ";
  document.getElementById("part-head").textContent = `Share of ${known}${metrics.get(metric).label}`;
  chart.show(model, metric, view, selected);
  showCrumbs(view);
  showTypes(document.getElementById("types"), model, metric);
  table.show(model, metric);
  search();
  showSelected({ row: selected, run: null });
}

function search() {
  const wanted = searchBox.value.trim();
  if (!wanted) {
    searchStatus.textContent = "";
    chart.mark(null);
    table.filter(null);
    return [];
  }
  const found = state.model.search(wanted);
  searchStatus.textContent = `${found.length} ${found.length === 1 ? "call matches" : "calls match"}`;
  chart.mark(new Set(found));
  table.filter(found);
  return found;
}

let lastFound = -1;
searchBox.addEventListener("input", () => { lastFound = -1; search(); });
searchBox.addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    searchBox.value = "";
    search();
  } else if (event.key === "Enter") {
    // Enter walks through the matches.
    event.preventDefault();
    const found = state.model.search(searchBox.value.trim());
    if (!searchBox.value.trim() || !found.length) return;
    lastFound = (lastFound + 1) % found.length;
    table.onSelect(found[lastFound]);
    searchStatus.textContent = `Match ${lastFound + 1} of ${found.length}`;
  }
});

document.querySelectorAll("input[name=metric]").forEach((radio) => {
  radio.checked = radio.value === state.metric;
  radio.addEventListener("change", () => {
    // Only the numbers change: the place in the tree and the selection stay.
    state.metric = radio.value;
    refresh({ row: chart.view.row, run: null }, chart.selected.row);
  });
});
document.querySelectorAll("input[name=report]").forEach((radio) => {
  radio.addEventListener("change", () => {
    state.model = models[Number(radio.value)];
    refresh();
  });
});

let resizing = 0;
let width = chart.element.clientWidth;
window.addEventListener("resize", () => {
  cancelAnimationFrame(resizing);
  resizing = requestAnimationFrame(() => {
    if (chart.element.clientWidth === width) return;
    width = chart.element.clientWidth;
    chart.draw();
  });
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => chart.draw());

refresh();
document.documentElement.dataset.ready = "true";
