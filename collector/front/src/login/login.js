// A link may have the token in its fragment, which browsers do not send to a server. It is removed
// from the address at once, so that it is neither copied nor kept in the tab's history.
function readFragment(isAddressChange) {
  const token = new URLSearchParams(location.hash.slice(1)).get('token');
  if (token !== null) history.replaceState(null, '', location.pathname + location.search);
  const form = document.querySelector('form[action="login"]');
  if (token && form) {
    form.elements.token.value = token;
    // A stranger's link would log the browser in with the stranger's token.
    if (isAddressChange || document.querySelector('meta[name="ask"]')) ask(form, token);
    else form.submit();
    return;
  }
  // Browsers send no `SameSite=Strict` cookie with a link from another site, but they do from here.
  const retry = document.querySelector('meta[name="retry"]');
  if (retry) location.replace(retry.content);
}

// Has the person decide about the token of a link.
function ask(form, token) {
  const text = `A link logs you in with token ${token.split('_')[1]}. Go on only if you trust its sender.`;
  const question = form.querySelector('.error') ?? form.insertBefore(document.createElement('p'), form.firstChild);
  question.className = 'error';
  question.setAttribute('role', 'alert');
  question.textContent = text;
  form.closest('details')?.setAttribute('open', '');
}

addEventListener('hashchange', () => readFragment(true));
readFragment(false);
