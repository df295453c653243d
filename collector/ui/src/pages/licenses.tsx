// The licences of what is in the page and in the collector.

import { useEffect, useState } from 'preact/hooks';
import { href } from '../core/address';
import { Loading } from '../parts/Notes';

export function LicensesPage() {
  const [text, setText] = useState<string>();
  useEffect(() => {
    fetch(href('licenses.txt'))
      .then((answer) => answer.text())
      .then(setText, () => setText('The collector cannot be reached.'));
  }, []);
  return text === undefined ? (
    <Loading />
  ) : (
    <section>
      <h2>Licences</h2>
      <pre class="licenses">{text}</pre>
    </section>
  );
}
