// The service's HTTP interface as functions, and what goes wrong as one kind of error.

export class ServiceError extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

const KEY = "bitrank-token";

export function keepToken(token) {
  sessionStorage.setItem(KEY, token);
}

async function call(method, path, body) {
  const headers = {};
  const token = sessionStorage.getItem(KEY);
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined && !(body instanceof FormData)) {
    headers["Content-Type"] = "application/json";
    body = JSON.stringify(body);
  }
  let response;
  try {
    response = await fetch(path, { method, headers, body });
  } catch {
    throw new ServiceError(0, "The service does not answer.");
  }
  const answer = await response.json().catch(() => null);
  if (!response.ok) throw new ServiceError(response.status, describe(answer?.detail) ?? `The service answered ${response.status}.`);
  return answer;
}

// A detail is a sentence, or the list of faults that a wrong body gets.
function describe(detail) {
  if (Array.isArray(detail)) return detail.map((fault) => `${fault.loc?.at(-1) ?? "request"}: ${fault.msg}`).join("; ");
  return detail;
}

const named = (profile) => `profiles/${encodeURIComponent(profile)}`;

export const collection = () => call("GET", "collection");
export const items = (offset, limit) => call("GET", `items?offset=${offset}&limit=${limit}`);
export const item = (id) => call("GET", `items/${id}`);
export const search = (query, options) => call("POST", "search", { ...query, ...options });
export const feedback = (page) => call("POST", "feedback", page);
export const profiles = () => call("GET", "profiles");
export const versions = (profile) => call("GET", `${named(profile)}/versions`);
export const version = (profile, number) => call("GET", `${named(profile)}/versions/${number}`);
export const activate = (profile, number) => call("POST", `${named(profile)}/versions/${number}/activate`);
export const rollback = (profile) => call("POST", `${named(profile)}/rollback`);
export const quality = (profile) => call("GET", `${named(profile)}/quality`);

export function searchImage(blob, profile) {
  const form = new FormData();
  form.append("file", blob, "picture.png");
  return call("POST", `search/image?profile=${encodeURIComponent(profile)}`, form);
}
