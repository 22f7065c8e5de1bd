// The text of a filter, such as "label = 3 and price < 10", as the object that the API takes.

import { ServiceError } from "./api.js";

const NAMES = { "=": "equals", ">=": "at_least", ">": "above", "<=": "at_most", "<": "below", in: "in" };

// A number or a truth value, or else a text, quoted or not.
function value(text) {
  const bare = text.trim();
  if (/^(-?\d+(\.\d+)?|true|false)$/.test(bare)) return JSON.parse(bare);
  return bare.replace(/^"(.*)"$/, "$1");
}

function condition(text) {
  const found = text.trim().match(/^(?:"([^"]+)"|([^\s<>=]+))\s*(<=|>=|=|<|>|\bin\b)\s*(.+)$/);
  if (!found) throw new ServiceError(0, `The filter must be like “label = 3 and price < 10”, got “${text.trim()}”.`);
  const [, quoted, bare, sign, right] = found;
  return { column: quoted ?? bare, [NAMES[sign]]: sign === "in" ? right.split(",").map(value) : value(right) };
}

export function parse(text) {
  if (!text.trim()) return undefined;
  const parts = text.split(/\s+and\s+/).map(condition);
  return parts.length === 1 ? parts[0] : { and: parts };
}
