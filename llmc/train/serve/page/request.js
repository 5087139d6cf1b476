// ---- request.js: addresses of the server

/** The address of a request: beside the page, with the page's own token. */
function address(path, parameters = {}) {
  const token = new URLSearchParams(location.search).get("token");
  const p = new URLSearchParams({...parameters, ...(token === null ? {} : {token})}).toString();
  return "./" + path + (p ? "?" + p : "");
}
