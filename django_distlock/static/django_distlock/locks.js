/* The Locks page refreshes itself: only what has changed is touched, so that the place on the page,
   what is selected and the focus stay where they are. */
"use strict";

(() => {
  const root = document.getElementById("distlock");
  if (!root) return;
  const HIDDEN = 60000; // ms between two refreshes of a tab that nobody looks at
  const LONGEST = 60000; // ms between two attempts when refreshing fails
  const PART_OF_TIME = 10; // the server is busy with us for a tenth of the time at most
  const find = (selector) => root.querySelector(selector);
  const live = find("[data-live]");
  const status = find("[data-status]");
  const pause = find("[data-pause]");
  const interval = find("[data-interval]");
  const button = find("[data-release]");
  const all = find("[data-all]");
  let received = performance.now();
  let took = Number(root.dataset.took) * 1000;
  let failures = 0;
  let timer = 0;
  let running = null;
  let down = new Set([...root.querySelectorAll("[data-retry]")].map((each) => each.dataset.retry));

  const text = (name, values = {}) =>
    root.dataset[name].replace(/\{(\w+)\}/g, (whole, key) => String(values[key] ?? whole));

  function stored(name, value) {
    try {
      if (value === undefined) return localStorage.getItem(`django-distlock.${name}`);
      localStorage.setItem(`django-distlock.${name}`, value);
    } catch {
      // storage is off: the choice holds for this page
    }
    return null;
  }

  // -- changing only what is different -------------------------------------------------------

  function morph(old, fresh) {
    for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
    for (const { name, value } of [...fresh.attributes])
      if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    children(old, fresh);
  }

  function children(old, fresh) {
    const keyed = new Map();
    for (const each of old.children) if (each.dataset.key) keyed.set(each.dataset.key, each);
    if (keyed.size) {
      // Without those that go and the blanks between, no row that stays has to be moved, which
      // would take the focus away from it.
      const stay = new Set([...fresh.children].map((each) => each.dataset.key));
      for (const each of [...old.childNodes]) {
        if (blank(each)) each.remove();
        else if (each.dataset?.key && !stay.has(each.dataset.key)) drop(each);
      }
      for (const each of [...fresh.childNodes]) if (blank(each)) each.remove();
    }
    let at = old.firstChild;
    for (const wanted of [...fresh.childNodes]) {
      const key = wanted.dataset?.key;
      const match = key ? keyed.get(key) : at;
      if (match?.parentNode === old && !(key === undefined && at.dataset?.key) && alike(match, wanted)) {
        if (match === at) at = at.nextSibling;
        else old.insertBefore(match, at);
        if (match.nodeType === Node.ELEMENT_NODE) morph(match, wanted);
        else if (match.nodeValue !== wanted.nodeValue) match.nodeValue = wanted.nodeValue;
      } else {
        old.insertBefore(wanted, at);
      }
    }
    while (at) {
      const gone = at;
      at = at.nextSibling;
      drop(gone);
    }
  }

  const blank = (node) => node.nodeType === Node.TEXT_NODE && !node.nodeValue.trim();

  const alike = (one, other) => one.nodeType === other.nodeType && one.nodeName === other.nodeName;

  /* The focus must not fall back to the top of the page with a row that goes. */
  function drop(node) {
    if (node.nodeType === Node.ELEMENT_NODE && node.contains(document.activeElement)) {
      const other = node.nextElementSibling ?? node.previousElementSibling;
      (other?.querySelector("a, input") ?? interval).focus({ preventScroll: true });
    }
    node.remove();
  }

  function replace(name, html) {
    const part = find(`[data-part="${name}"]`);
    const made = document.createElement(part.tagName === "TBODY" ? "table" : "div");
    const parsed = new DOMParser().parseFromString(
      part.tagName === "TBODY" ? `<table><tbody>${html}</tbody></table>` : html, "text/html");
    made.append(...(parsed.querySelector("tbody") ?? parsed.body).childNodes);
    const focused = document.activeElement;
    children(part, made);
    if (focused !== document.activeElement && part.contains(focused)) focused.focus({ preventScroll: true });
  }

  // -- counting ------------------------------------------------------------------------------

  function duration(seconds) {
    const whole = Math.max(0, Math.floor(seconds));
    for (const [unit, size, smaller, part] of [["d", 86400, "h", 3600], ["h", 3600, "m", 60], ["m", 60, "s", 1]])
      if (whole >= size)
        return `${Math.floor(whole / size)}${unit}${String(Math.floor((whole % size) / part)).padStart(2, "0")}${smaller}`;
    return `${whole}s`;
  }

  function say(element, words) {
    if (element.firstChild?.nodeType === Node.TEXT_NODE) {
      if (element.firstChild.nodeValue !== words) element.firstChild.nodeValue = words;
    } else element.textContent = words;
  }

  function tick() {
    if (document.hidden) return;
    const passed = (performance.now() - received) / 1000;
    for (const each of root.querySelectorAll("[data-age]")) say(each, duration(Number(each.dataset.age) + passed));
    for (const each of root.querySelectorAll("[data-left]")) {
      const left = Math.max(0, Number(each.dataset.left) - passed);
      say(each, duration(left));
      each.previousElementSibling.value = left;
      each.parentElement.classList.toggle("dl-ending", left < Number(each.dataset.warns));
    }
  }

  // -- selecting -----------------------------------------------------------------------------

  const boxes = () => [...root.querySelectorAll('[data-part="rows"] input[name="hold"]')];

  function selected() {
    if (!button) return;
    const number = boxes().filter((each) => each.checked).length;
    button.hidden = number === 0;
    all.checked = number > 0 && number === boxes().length;
    all.indeterminate = number > 0 && !all.checked;
    say(find("[data-selected]"), number ? text("textSelected", { number }) : "");
  }

  // -- refreshing ----------------------------------------------------------------------------

  const paused = () => pause.getAttribute("aria-pressed") === "true";

  function plan() {
    clearTimeout(timer);
    if (paused()) return;
    let wait = Math.max(Number(interval.value) * 1000, took * PART_OF_TIME);
    if (failures) wait = Math.min(LONGEST, Math.max(wait, 2000 * 2 ** failures));
    if (document.hidden) wait = Math.max(wait, HIDDEN);
    timer = setTimeout(refresh, wait);
    if (failures) {
      status.classList.add("dl-failed");
      say(status, text("textFailed", { seconds: Math.round(wait / 1000) }));
    }
  }

  async function refresh(retry = "") {
    clearTimeout(timer);
    running?.abort();
    const mine = (running = new AbortController());
    const url = new URL(root.dataset.url, location.href);
    if (retry) url.searchParams.set("retry", retry);
    let answer;
    try {
      const response = await fetch(url, {
        headers: { Accept: "application/json" }, credentials: "same-origin", redirect: "manual", signal: mine.signal,
      });
      if (response.type === "opaqueredirect" || response.status === 403) return signedOut();
      if (!response.ok) throw new TypeError(`HTTP ${response.status}`);
      answer = await response.json();
      failures = 0;
    } catch (error) {
      if (error.name === "AbortError") return;
      failures += 1;
      if (failures === 1) say(live, text("textFailed", { seconds: 4 }));
    }
    if (answer) show(answer);
    running = null;
    plan();
  }

  function signedOut() {
    status.classList.add("dl-failed");
    say(status, text("textSignedOut"));
    say(live, text("textSignedOut"));
  }

  function show(answer) {
    received = performance.now();
    took = answer.took * 1000;
    for (const name of ["verdict", "stores", "rows", "pages"]) replace(name, answer[name]);
    say(find('[data-part="found"]'), answer.found);
    tick();
    selected();
    status.classList.remove("dl-failed");
    say(status, text("textUpdated", { time: new Date().toLocaleTimeString() }));
    const now = new Set(answer.down);
    const news = [...now].filter((each) => !down.has(each)).map((alias) => text("textDown", { alias }));
    news.push(...[...down].filter((each) => !now.has(each)).map((alias) => text("textUp", { alias })));
    if (news.length) say(live, news.join(". "));
    down = now;
    root.dataset.refreshed = String(Number(root.dataset.refreshed ?? 0) + 1);
  }

  function setPaused(on) {
    pause.setAttribute("aria-pressed", String(on));
    stored("paused", on ? "1" : "");
    say(live, text(on ? "textPaused" : "textResumed"));
    status.classList.remove("dl-failed");
    if (on) {
      clearTimeout(timer);
      running?.abort();
      running = null;
      say(status, text("textPaused"));
    } else refresh();
  }

  setInterval(tick, 1000);
  if (!root.dataset.url) return; // the page of one lock: what is counted there counts on

  pause.addEventListener("click", () => setPaused(!paused()));
  interval.addEventListener("change", () => {
    stored("interval", interval.value);
    plan();
  });
  document.addEventListener("visibilitychange", () => {
    if (document.hidden || paused()) plan();
    else refresh(); // somebody looks again
  });
  root.addEventListener("click", (event) => {
    const retry = event.target.closest("[data-retry]");
    if (!retry) return;
    event.preventDefault();
    refresh(retry.dataset.retry);
  });
  root.addEventListener("change", (event) => {
    if (event.target === all) for (const each of boxes()) each.checked = all.checked;
    selected();
  });

  // Where there is little room (see the style sheet) the locks come first.
  const more = find(".dl-more");
  if (getComputedStyle(more.querySelector("summary")).display !== "none")
    more.open = [...more.querySelectorAll('select:not([name="o"])')].some((each) => each.value);
  find(".dl-refresh").hidden = false;
  if (all) all.hidden = false;
  const chosen = stored("interval");
  if (chosen && [...interval.options].some((each) => each.value === chosen)) interval.value = chosen;
  selected();
  if (stored("paused")) {
    pause.setAttribute("aria-pressed", "true");
    say(status, text("textPaused"));
  } else plan();
})();
