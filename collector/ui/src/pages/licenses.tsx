// Licenses of the packages in the page and the collector.

import { useEffect, useState } from 'preact/hooks';
import { Loading } from '../components/Messages';
import { href } from '../core/address';
import { fetchOk } from '../core/fetch';

export function LicensesPage() {
  const [text, setText] = useState<string>();
  useEffect(() => {
    fetchOk(href('licenses.txt'))
      .then((answer) => answer.text())
      .then(setText, () => setText('The collector cannot be reached.'));
  }, []);
  return text === undefined ? (
    <Loading />
  ) : (
    <section>
      <h2>Licenses</h2>
      <pre class="licenses">{text}</pre>
    </section>
  );
}
