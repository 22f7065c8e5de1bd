// The table of versions: the active one, the origin of each, and buttons to show or activate one.

import { aside, make } from "./dom.js";

const HEADS = ["Version", "Made", "From", "Pages", "Held-out", "Hamming", "State"];
const ORIGINS = { uniform: "equal weights", index: "the index", ranker: "a saved ranker", given: "weights from the API" };
const number = (value) => (typeof value === "number" ? value.toFixed(3) : "–");

export function versionsTable(place, versions, { activate, show }) {
  const head = make("tr", {}, ...[...HEADS, aside("Actions")].map((text) => make("th", { scope: "col" }, text)));
  const body = versions.toReversed().map((version) => row(version, activate, show));
  place.replaceChildren(make("table", {}, make("thead", {}, head), make("tbody", {}, ...body)));
}

function row(version, activate, show) {
  const of = (words) => aside(` ${words} version ${version.number}`);
  return make(
    "tr",
    { class: version.active ? "current" : null, "data-version": version.number },
    make("td", {}, String(version.number)),
    make("td", {}, time(version.time)),
    make("td", {}, ORIGINS[version.origin] ?? `clicks on version ${version.made_from}`),
    make("td", {}, String(version.n_pages)),
    make("td", {}, number(version.figures.candidate)),
    make("td", {}, number(version.figures.hamming)),
    make("td", {}, version.active ? "active" : ""),
    make(
      "td",
      {},
      make("button", { type: "button", onclick: () => show(version) }, "Weights", of("of")),
      " ",
      make("button", { type: "button", disabled: version.active, onclick: () => activate(version) }, "Activate", of("")),
    ),
  );
}

function time(seconds) {
  const date = new Date(seconds * 1000);
  return make("time", { datetime: date.toISOString() }, date.toLocaleString([], { dateStyle: "short", timeStyle: "short" }));
}
