// The HTTP API of the service as functions; every failure is a ServiceError.

export class ServiceError extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

async function call(method, path, body, { headers = {}, ...options } = {}) {
  if (body !== undefined && !(body instanceof FormData)) {
    headers["Content-Type"] = "application/json";
    body = JSON.stringify(body);
  }
  let response;
  try {
    response = await fetch(path, { method, headers, body, ...options });
  } catch {
    throw new ServiceError(0, "The service does not answer.");
  }
  const answer = await response.json().catch(() => null);
  if (!response.ok) throw new ServiceError(response.status, answer?.detail ?? `The service answered ${response.status}.`);
  return answer;
}

// Writes of unknown outcome keep their key: sent again, they count once.
const keys = new Map();
async function once(path) {
  const key = keys.get(path) ?? Array.from(crypto.getRandomValues(new Uint32Array(4)), (part) => part.toString(16)).join("-");
  keys.set(path, key);
  try {
    const answer = await call("POST", path, undefined, { headers: { "Idempotency-Key": key } });
    keys.delete(path);
    return answer;
  } catch (error) {
    if (error.status >= 400 && error.status < 500) keys.delete(path);
    throw error;
  }
}

const named = (profile) => `profiles/${encodeURIComponent(profile)}`;

export const collection = () => call("GET", "collection");
export const items = (offset, limit) => call("GET", `items?offset=${offset}&limit=${limit}`);
export const item = (id) => call("GET", `items/${id}`);
export const search = (query, options) => call("POST", "search", { ...query, ...options });
export const judge = (code, id, grade) =>
  call("POST", "judgements", { judgements: [{ code, items: [{ id, grade }], pinned: grade > 0 }] });
export const feedback = (page, keepalive) => call("POST", "feedback", page, { keepalive });
export const profiles = () => call("GET", "profiles");
export const versions = (profile) => call("GET", `${named(profile)}/versions`);
export const version = (profile, number) => call("GET", `${named(profile)}/versions/${number}`);
export const candidate = (profile) => call("GET", `${named(profile)}/candidate`);
export const activate = (profile, number) => once(`${named(profile)}/versions/${number}/activate`);
export const rollback = (profile) => once(`${named(profile)}/rollback`);
export const unanswered = (profile) => call("GET", `${named(profile)}/unanswered`);
export const quality = (profile) => call("GET", `${named(profile)}/quality`);

export function searchImage(blob, { chosen = [], continues, filter, ...options }) {
  const form = new FormData();
  if (continues !== undefined) form.append("continues", continues);
  form.append("file", blob, "picture");
  const parts = new URLSearchParams(options);
  if (filter !== undefined) parts.set("filter", JSON.stringify(filter));
  for (const id of chosen) parts.append("chosen", id);
  return call("POST", `search/image?${parts}`, form);
}
