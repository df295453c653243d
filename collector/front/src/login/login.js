// A link may have the token in its fragment, which browsers do not send to a server. It is removed
// from the address at once, so that it is neither copied nor kept in the tab's history.
function readFragment() {
  const token = new URLSearchParams(location.hash.slice(1)).get('token');
  if (token !== null) history.replaceState(null, '', location.pathname + location.search);
  const form = document.querySelector('form[action="login"]');
  if (token && form) {
    form.elements.token.value = token;
    form.submit();
    return;
  }
  // Browsers send no `SameSite=Strict` cookie with a link from another site, but they do from here.
  const retry = document.querySelector('meta[name="retry"]');
  if (retry) location.replace(retry.content);
}
addEventListener('hashchange', readFragment);
readFragment();
