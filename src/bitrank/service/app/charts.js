// Two charts as SVG, each with a sentence that describes it and a table of its numbers.

import { draw, make, plural } from "./dom.js";

const WIDTH = 640;
const number = (value) => (value === null || value === undefined ? "–" : Number(value).toFixed(3));

export function weightsChart(figure, weights, name) {
  const height = 176;
  const floor = height - 26;
  const top = Math.max(...weights, 0);
  const step = WIDTH / weights.length;
  const scale = top > 0 ? (floor - 8) / top : 0;
  const mean = weights.reduce((sum, weight) => sum + weight, 0) / weights.length;
  const bars = weights.map((weight, bit) =>
    draw(
      "rect",
      { x: bit * step + step * 0.1, y: floor - weight * scale, width: step * 0.8, height: weight * scale, class: weight < mean ? "bar light" : "bar" },
      draw("title", {}, `bit ${bit}: ${number(weight)}`),
    ),
  );
  const line = floor - mean * scale;
  const words = describeWeights(weights, mean, name);
  figure.replaceChildren(
    draw(
      "svg",
      { viewBox: `0 0 ${WIDTH} ${height}`, role: "img", "aria-label": words, class: "chart" },
      ...bars,
      draw("line", { x1: 0, x2: WIDTH, y1: floor, y2: floor, class: "axis" }),
      draw("line", { x1: 0, x2: WIDTH, y1: line, y2: line, class: "even" }),
      draw("text", { x: 0, y: height - 6 }, "bit 0"),
      draw("text", { x: WIDTH, y: height - 6, "text-anchor": "end" }, `bit ${weights.length - 1}`),
    ),
    make("figcaption", { class: "quiet" }, words),
    table("Numbers", ["bit", "weight"], weights.map((weight, bit) => [bit, number(weight)])),
  );
}

function describeWeights(weights, mean, name) {
  if (weights.every((weight) => weight === weights[0])) return `${name}: all ${weights.length} bits weigh the same, as in plain Hamming distance.`;
  const order = weights.map((_, bit) => bit).sort((a, b) => weights[b] - weights[a]);
  const none = weights.filter((weight) => weight === 0).length;
  return (
    `${name}: ${weights.length} weights from ${number(weights[order.at(-1)])} to ${number(weights[order[0]])}, ` +
    `mean ${number(mean)} (dashed). Heaviest: bits ${order.slice(0, 3).join(", ")}.` +
    (none ? ` ${plural(none, "bit")} with weight zero.` : "")
  );
}

const LINES = [
  ["active", "Active version"],
  ["candidate", "Candidate"],
  ["hamming", "Hamming"],
];

// A decision on too few pages has no figures, but a reason.
export function qualityChart(figure, replays) {
  const points = replays.filter((replay) => replay.active !== null);
  if (!points.length) {
    const reason = replays.length ? `so far, ${replays.at(-1).reason}` : "the gate replays held-out pages once there are clicks";
    figure.replaceChildren(make("figcaption", { class: "quiet" }, `Nothing measured yet: ${reason}.`));
    return;
  }
  const height = 196;
  const [left, right, top, floor] = [54, WIDTH - 10, 10, height - 30];
  const [low, high] = span(points.flatMap((point) => LINES.flatMap(([key]) => interval(point, key))));
  const [first, last] = [points[0].n_pages, points.at(-1).n_pages];
  const x = (page) => (last > first ? left + ((page - first) / (last - first)) * (right - left) : (left + right) / 2);
  const y = (value) => floor - ((value - low) / (high - low)) * (floor - top);
  const words = describeQuality(points.at(-1));
  figure.replaceChildren(
    draw(
      "svg",
      { viewBox: `0 0 ${WIDTH} ${height}`, role: "img", "aria-label": words, class: "chart" },
      ...[low, (low + high) / 2, high].flatMap((value) => [
        draw("line", { x1: left, x2: right, y1: y(value), y2: y(value), class: "grid-line" }),
        draw("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, value.toFixed(2)),
      ]),
      draw("text", { x: left, y: height - 6 }, last > first ? String(first) : ""),
      draw("text", { x: right, y: height - 6, "text-anchor": "end" }, plural(last, "page")),
      ...LINES.toReversed().map(([key]) => band(points, key, x, y)),
      ...LINES.toReversed().flatMap(([key]) => line(points, key, x, y)),
    ),
    make("ul", { class: "legend", "aria-hidden": "true" }, ...LINES.map(([key, label]) => make("li", { class: key }, label))),
    make("figcaption", { class: "quiet" }, words),
    table(
      "Numbers",
      ["pages", "active", "candidate", "Hamming", "decision", "reason", "alarm"],
      replays.map((replay) => [replay.n_pages, ...LINES.map(([key]) => number(replay[key])), replay.decision, replay.reason, replay.alarm ? "yes" : "no"]),
    ),
  );
}

// Two standard errors on either side, as the gate found them over clients.
function interval(point, key) {
  const share = point[key];
  const error = 2 * (point.error ?? Math.sqrt((share * (1 - share)) / Math.max(1, point.n_held_out)));
  return [Math.max(0, share - error), Math.min(1, share + error)];
}

function band(points, key, x, y) {
  const [lower, upper] = [0, 1].map((side) => points.map((point) => `${x(point.n_pages)},${y(interval(point, key)[side])}`));
  return draw("polygon", { points: [...upper, ...lower.toReversed()].join(" "), class: `band ${key}` });
}

function line(points, key, x, y) {
  const path = points.map((point) => `${x(point.n_pages)},${y(point[key])}`).join(" ");
  const dots = points.map((point) => draw("circle", { cx: x(point.n_pages), cy: y(point[key]), r: 2.5, class: `dot ${key}` }));
  return [draw("polyline", { points: path, class: `line ${key}` }), ...(points.length > 40 ? [] : dots)];
}

// Leaves a margin above and below; the span is never empty.
function span(values) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const air = Math.max((high - low) * 0.15, 0.005);
  return [low - air, high + air];
}

function describeQuality(last) {
  return (
    `After ${plural(last.n_pages, "page")}: active ${number(last.active)}, candidate ${number(last.candidate)}, ` +
    `Hamming ${number(last.hamming)}, each ± ${number(interval(last, "active")[1] - last.active)} at most (shaded). ` +
    `Quality is the share of far items that rank behind a chosen one; 0.5 is chance.` +
    (last.alarm ? " Alarm: the active version has fallen behind Hamming." : "")
  );
}

function table(title, heads, rows) {
  return make(
    "details",
    {},
    make("summary", {}, title),
    make(
      "div",
      { class: "scroll tall", tabindex: 0, role: "region", "aria-label": title },
      make(
        "table",
        {},
        make("thead", {}, make("tr", {}, ...heads.map((head) => make("th", { scope: "col" }, head)))),
        make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((cell) => make("td", {}, String(cell)))))),
      ),
    ),
  );
}
