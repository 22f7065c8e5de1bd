// What was learned, on a query that nobody has answered: its first results before (Hamming) and after.

import * as api from "./api.js";
import { make, plural } from "./dom.js";
import { picture } from "./results.js";

const SHOWN = 8;

export async function showGain(place, profile, version) {
  const { item } = await api.unanswered(profile);
  if (item === null) {
    place.replaceChildren(make("p", { class: "quiet" }, "Every item has been a query already."));
    return;
  }
  const ask = (options) => api.search({ item }, { k: SHOWN, explore: 0, ...options });
  const [known, before, after] = await Promise.all([
    api.item(item),
    ask({ profile: "hamming" }),
    ask({ profile, ...(version && { version }) }),
  ]);
  const old = new Set(before.results.map(({ id }) => id));
  const fresh = after.results.filter(({ id }) => !old.has(id)).length;
  const name = known.title || `item ${item}`;
  place.replaceChildren(
    make("p", {}, `For ${name}, which nobody has searched for: `, fresh ? `${plural(fresh, "result")} of ${SHOWN} changed.` : "the same results in both."),
    row("Before: Hamming", before, new Set()),
    row("After: learned", after, old),
  );
}

function row(title, answer, old) {
  const cards = answer.results.map((result) => {
    const name = result.title || `Item ${result.id}`;
    const isNew = old.size && !old.has(result.id);
    return make("li", { class: isNew ? "new" : null, title: name, "data-id": result.id }, picture(result, name), make("span", { class: "hidden" }, isNew ? `${name}, new` : name));
  });
  return make("div", { class: "strip" }, make("h3", {}, title), make("ol", {}, ...cards));
}
