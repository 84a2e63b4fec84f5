(() => {
  const all = [...document.querySelectorAll('[data-g]')].map(e => [e, e.dataset.g.split(' ').filter(g => g)]);
  const parts = all.filter(([e]) => e.closest('svg')), cells = all.filter(([e]) => !e.closest('svg'));
  const within = (some, others) => some.every(g => others.includes(g));
  const route = (pair, nv) => {
    const both = parts.filter(([, g]) => within(pair, g)).map(([, g]) => g.length);
    const turn = Math.min(...both);
    return parts.filter(([e, g]) => {
      const link = e.classList.contains('nv') || e.classList.contains('plane');
      if (e.classList.contains('gpu') || e.classList.contains('small')) return g.some(one => pair.includes(one));
      if (nv || link) return nv && link && (g.length > 1 ? within(pair, g) : pair.includes(g[0]));
      const ends = pair.filter(one => g.includes(one)).length;
      return ends === 1 || ends === 2 && g.length === turn;
    });
  };
  const light = target => {
    document.querySelectorAll('.lit').forEach(e => e.classList.remove('lit'));
    document.body.classList.toggle('lights', !!target);
    if (!target) return;
    const own = target.dataset.g.split(' ').filter(g => g);
    const crosses = ([, g]) => g.length > 1 && g.filter(one => own.includes(one)).length === 1;
    const lit = target.matches('td')
      ? [...route(own, target.dataset.way === 'nv'), ...cells.filter(([, g]) => g.length === 2 && within(g, own))]
      : [...parts.filter(([, g]) => g.length && (within(g, own) || within(own, g))), ...cells.filter(crosses)];
    lit.forEach(([e]) => e.classList.add('lit'));
    target.classList.add('lit');
  };
  const at = e => light(e.target.closest?.('[data-g]'));
  const bad = document.querySelector('.picture .gpu.error, .picture .gpu.warning'), box = bad?.closest('.scroll');
  if (box) box.scrollLeft = bad.getBoundingClientRect().x - box.getBoundingClientRect().x - box.clientWidth / 2;
  const button = document.querySelector('#copy'), ticket = document.querySelector('#ticket');
  // A page that came over plain http has no clipboard.
  button.addEventListener('click', () => (navigator.clipboard?.writeText(ticket.textContent) ?? Promise.reject()).then(
    () => { button.textContent = 'Copied'; },
    () => { ticket.hidden = false; getSelection().selectAllChildren(ticket); }));
  document.body.classList.add('live');
  ['mouseover', 'focusin', 'click'].forEach(kind => document.addEventListener(kind, at));
})();
