// The panel beside the picture: one call in full, and the legend of types.

/** Show one call, or a run of calls, in the panel. */
function showDetails(panel, model, { row, run }, actions) {
  if (!model.length) return panel.replaceChildren();
  if (run) {
    panel.replaceChildren(
      make("h3", {}, `${run.length} calls inside `, name(model.title(row), 60)),
      make("p", {}, "Each is too narrow to be drawn on its own at this zoom."),
      make("ul", { class: "plain" }, ...run.slice(0, 12).map((one) => make("li", {}, name(model.title(one), 60)))),
      run.length > 12 ? make("p", {}, `… and ${run.length - 12} more`) : "",
      make("p", {}, button("Zoom to them", () => actions.zoom({ row, run }))),
    );
    return undefined;
  }
  const { columns } = model;
  const path = model.path(row);
  const parts = [
    make("h3", { tabindex: "-1" }, make("bdi", { class: "whole" }, path || "(root)")),
    make("p", { class: "type" }, make("bdi", { class: "whole" }, model.type(row)),
      model.index(row) ? `, call ${model.index(row) + 1} of this path` : ""),
  ];
  if (model.failed.has(row)) {
    parts.push(make("p", { class: "alert" }, "This call raised an error that the model caught."));
  }
  const facts = make("dl", { class: "facts" });
  const fact = (term, value) => facts.append(make("dt", {}, term), make("dd", {}, value));
  fact("Input", make("bdi", { class: "whole" }, text(columns.input[row]) || "none"));
  fact("Output", make("bdi", { class: "whole" }, text(columns.output[row])));
  for (const one of page.metrics) {
    const sizes = model.sizes(one.key);
    if (sizes) fact(one.label, standingOf(model, sizes, one, row));
  }
  if (model.shared.has(row)) fact("Sharing", "an earlier call already counts a parameter of this module");
  if (columns.tokens[row]) fact("Tokens", make("bdi", { class: "whole" }, text(columns.tokens[row][1])));
  parts.push(facts);
  const notes = columns.notes[row] ?? [];
  if (notes.length) {
    parts.push(make("h4", {}, "Diagnostics"), make("ul", { class: "plain" }, ...notes.map(([code, message]) =>
      make("li", {}, make("code", {}, text(code)), " ", make("bdi", { class: "whole" }, text(message))))));
  }
  const buttons = make("p", { class: "actions" });
  if (model.children[row].length) buttons.append(button("Zoom here", () => actions.zoom({ row, run: null })));
  buttons.append(button("Find in the table", () => actions.reveal(row)));
  parts.push(buttons);
  panel.replaceChildren(...parts);
  return undefined;
}

function button(label, action) {
  const element = make("button", { type: "button" }, label);
  element.addEventListener("click", action);
  return element;
}

/** Return how one metric stands in one call, in words. */
function standingOf(model, sizes, { unit }, row) {
  const own = sizes.own[row];
  const parts = make("span", {});
  if (own === "o") {
    const owner = sizes.owner[row];
    parts.append("inside the estimate of ", owner === undefined ? "another call" : name(model.title(owner), 60));
    return parts;
  }
  const total = measuredInFull(sizes.total[row], sizes.totalNumber[row], unit);
  const inside = model.children[row].length > 0;
  if (own === "-") {
    parts.append(inside ? total : "no estimate of its own, and no calls inside");
  } else {
    const alone = measuredInFull(own, sizes.ownNumber[row], unit);
    parts.append(inside ? total : alone);
    if (inside && own !== "c") parts.append(make("small", { class: "line" }, "its own work: ", alone));
    else if (inside && alone !== total) parts.append(make("small", { class: "line" }, "of which its own: ", alone));
  }
  const how = [sizes.handler[row], sizes.method[row]].filter((one) => one !== undefined).map(text);
  if (how.length) parts.append(make("small", { class: "line" }, name(how.join(", "), 120)));
  return parts;
}

/** Write the legend of types: the ones with a colour, their calls and their part of what is known. */
function showTypes(list, model, metric) {
  const sizes = model.sizes(metric);
  list.replaceChildren();
  if (!sizes) return;
  const whole = model.whole(metric);
  const sums = new Map();
  model.columns.type.forEach((type, row) => {
    const entry = sums.get(type) ?? { calls: 0, known: 0, open: 0 };
    entry.calls += 1;
    if (sizes.own[row] === "c" || sizes.own[row] === "p") entry.known += Number(sizes.ownNumber[row]);
    if (sizes.own[row] === "u" || sizes.own[row] === "p") entry.open += 1;
    sums.set(type, entry);
  });
  const ranked = [...sums].filter(([type, sum]) => typeColours.has(type) && (sum.known || sum.open));
  ranked.sort((a, b) => b[1].known - a[1].known);
  for (const [type, sum] of ranked) {
    const facts = [`${sum.calls} ${sum.calls === 1 ? "call" : "calls"}`];
    if (whole && sum.known) facts.unshift(`${(100 * sum.known / whole).toFixed(1)} %`);
    if (sum.open) facts.push(`${sum.open === sum.calls ? "" : `${sum.open} `}not completely known`);
    list.append(make("li", {},
      make("span", { class: `swatch type-${typeColours.get(type)}`, "aria-hidden": "true" }),
      name(text(type), 32), " ",
      make("span", { class: "quiet" }, facts.join(", "))));
  }
}
