// Looks at a page as a browser has laid it out: text that overlaps text, and text that is hard to read on its ground.
(() => {
  const faults = [];
  const seen = e => e.checkVisibility({ opacityProperty: true, visibilityProperty: true, contentVisibilityAuto: true });
  const channels = color => {
    const parts = color.match(/[\d.]+/g).map(Number);
    return { rgb: parts.slice(0, 3), alpha: parts.length > 3 ? parts[3] : 1 };
  };
  const over = (top, below) => top.rgb.map((c, i) => c * top.alpha + below[i] * (1 - top.alpha));
  const luminance = rgb => {
    const [r, g, b] = rgb.map(c => c / 255).map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (one, other) => {
    const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const paper = () => channels(getComputedStyle(document.body).backgroundColor).rgb;
  const ground = e => {
    const layers = [];
    for (let at = e; at; at = at.parentElement) {
      layers.push(channels(getComputedStyle(at).backgroundColor));
      if (layers.at(-1).alpha === 1) break;
    }
    return layers.reverse().reduce((below, layer) => over(layer, below), paper());
  };
  // In a drawing, the last field drawn below the middle of a text is its ground.
  const drawn = text => {
    const box = text.getBoundingClientRect(), [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
    const holds = r => { const b = r.getBoundingClientRect(); return b.x <= x && x <= b.right && b.y <= y && y <= b.bottom; };
    const before = r => r.compareDocumentPosition(text) & Node.DOCUMENT_POSITION_FOLLOWING;
    const rects = [...text.ownerSVGElement.querySelectorAll('rect')].filter(r => before(r) && holds(r));
    const fill = rects.length ? channels(getComputedStyle(rects.at(-1)).fill) : null;
    return fill && fill.alpha ? over(fill, paper()) : ground(text.ownerSVGElement.parentElement);
  };
  const name = e => JSON.stringify(e.textContent.trim().slice(0, 40));

  // A drawing is legible where its letters are not much smaller than those of a newspaper.
  const LEAST = 9;
  const size = e => parseFloat(getComputedStyle(e).fontSize) * e.getScreenCTM().a;
  const clipped = e => { const s = e.closest('.scroll'); return s ? s.getBoundingClientRect() : null; };

  const look = root => {
    const walk = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
    const texts = [];
    for (let node = walk.nextNode(); node; node = walk.nextNode()) {
      const e = node.parentElement;
      if (!node.data.trim() || ['SCRIPT', 'STYLE', 'title', 'desc'].includes(e.tagName) || !seen(e)) continue;
      const range = document.createRange();
      range.selectNodeContents(node);
      for (const box of range.getClientRects()) if (box.width > 1 && box.height > 1) texts.push({ e, box });
      const svg = e.closest('svg'), style = getComputedStyle(e);
      const ratio = contrast(channels(svg ? style.fill : style.color).rgb, svg ? drawn(e.closest('text')) : ground(e));
      if (ratio < 4.5) faults.push(`contrast ${ratio.toFixed(2)}: ${name(e)} in ${e.tagName}.${e.getAttribute('class')}`);
      if (svg && size(e) < LEAST) faults.push(`${size(e).toFixed(1)} px: ${name(e)} in a drawing`);
    }
    const tops = new Map();
    texts.forEach(t => { for (let row = Math.floor(t.box.y / 40); row <= t.box.bottom / 40; row++) tops.set(row, [...(tops.get(row) || []), t]); });
    const pairs = new Set();
    for (const row of tops.values()) {
      row.forEach((one, i) => row.slice(i + 1).forEach(other => {
        if (one.e === other.e || one.e.contains(other.e) || other.e.contains(one.e)) return;
        // What stays in place while its box scrolls lies over the rest by design.
        if (one.e.closest('tbody th') || other.e.closest('tbody th')) return;
        const across = Math.min(one.box.right, other.box.right) - Math.max(one.box.x, other.box.x);
        const down = Math.min(one.box.bottom, other.box.bottom) - Math.max(one.box.y, other.box.y);
        if (across > 1.5 && down > 3.5) pairs.add(`overlap: ${name(one.e)} and ${name(other.e)}`);
      }));
    }
    faults.push(...pairs);
    for (const e of root.querySelectorAll('*')) {
      const box = e.getBoundingClientRect();
      if (box.right > innerWidth + 1 && !clipped(e) && seen(e) && box.width > 0) faults.push(`wider than the page: ${e.tagName}.${e.getAttribute('class')}`);
    }
    return texts.length;
  };
  // Text within a field of a chart stays within it.
  const fits = () => {
    for (const text of document.querySelectorAll('svg.lane g text')) {
      const [box, field] = [text, text.parentElement.querySelector('rect')].map(e => e.getBoundingClientRect());
      if (box.x < field.x - 1 || box.right > field.right + 1) faults.push(`outside of its field: ${name(text)}`);
    }
  };

  const texts = look(document.body);
  fits();
  // Each map by itself: one is shown at a time.
  for (const input of [...document.querySelectorAll('.tabs input')].slice(1)) {
    input.checked = true;
    look(document.querySelector('.tabs'));
  }
  const charts = [...document.querySelectorAll('svg.lane')].filter(seen).length;
  const result = document.createElement('pre');
  result.id = 'result';
  result.textContent = JSON.stringify({ texts, charts, live: document.body.classList.contains('live'), faults: [...new Set(faults)].slice(0, 20) });
  document.body.append(result);
})();
