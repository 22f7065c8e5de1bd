// The versions of a profile: which is active, how each came to be, and the buttons to choose another.

import { aside, make } from "./dom.js";

const HEADS = ["Version", "Made", "From", "Held-out", "Hamming", "State"];
const number = (value) => (typeof value === "number" ? value.toFixed(3) : "–");

export function versionsTable(place, versions, { activate, show }) {
  if (!versions.length) {
    place.replaceChildren(make("p", { class: "quiet" }, "No version yet: the first clicks make one."));
    return;
  }
  const head = make("tr", {}, ...[...HEADS, aside("Actions")].map((text) => make("th", { scope: "col" }, text)));
  const body = versions.map((version) => row(version, activate, show));
  place.replaceChildren(make("table", {}, make("thead", {}, head), make("tbody", {}, ...body)));
}

function row(version, activate, show) {
  const name = String(version.version);
  return make(
    "tr",
    { class: version.active ? "current" : null, "data-version": name },
    make("td", {}, name),
    make("td", {}, time(version.time)),
    make("td", {}, version.made_from ?? "–"),
    make("td", {}, number(version.figures?.candidate)),
    make("td", {}, number(version.figures?.hamming)),
    make("td", {}, version.active ? "active" : ""),
    make(
      "td",
      {},
      make("button", { type: "button", onclick: () => show(version) }, "Weights", aside(` of version ${name}`)),
      " ",
      make("button", { type: "button", disabled: version.active, onclick: () => activate(version) }, "Activate", aside(` version ${name}`)),
    ),
  );
}

function time(text) {
  const date = new Date(text);
  if (Number.isNaN(date.valueOf())) return "–";
  return make("time", { datetime: date.toISOString() }, date.toLocaleString([], { dateStyle: "short", timeStyle: "short" }));
}
