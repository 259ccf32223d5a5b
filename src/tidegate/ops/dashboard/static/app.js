// What pages do: live parts, actions that call the API, times in the zone of the viewer, and keys.
// Pages work without it, except for what changes something. Forms are `post` all the same: one that is sent before this
// has come would write a token into the address.

const one = (selector, root = document) => root.querySelector(selector);
const all = (selector, root = document) => root.querySelectorAll(selector);

// --- times ---

const styles = {
  moment: new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" }),
  time: new Intl.DateTimeFormat(undefined, { timeStyle: "medium" }),
  minute: new Intl.DateTimeFormat(undefined, { timeStyle: "short" }),
};
const relative = new Intl.RelativeTimeFormat(undefined, { numeric: "auto", style: "short" });
const units = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];

function ago(date) {
  const seconds = (date - Date.now()) / 1000;
  const [unit, size] = units.find(([, size]) => Math.abs(seconds) >= size) ?? ["second", 1];
  return relative.format(Math.round(seconds / size), unit);
}

function showTimes(root = document) {
  for (const time of all("time[datetime]", root)) {
    const date = new Date(time.dateTime);
    const { style } = time.dataset;
    const text = style === "due" && date <= Date.now() ? "by now" : style === "ago" || style === "due" ? ago(date) : styles[style].format(date);
    if (time.textContent !== text) time.textContent = text;
    time.title = `${styles.moment.format(date)} (${time.dateTime.replace("T", " ").slice(0, 19)} UTC)`;
  }
}

// --- live parts ---

// Makes `old` like `fresh`, and touches nothing that is alike: focus, selection and open details stay. What has an id
// is known by it wherever it stands: the button that has the focus does not become that of another row.
function morph(old, fresh) {
  const isOurs = (name) => (name === "open" && old.tagName === "DETAILS") || (name === "disabled" && "action" in old.dataset);
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name) && !isOurs(name)) old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  const known = new Map([...old.children].filter((child) => child.id).map((child) => [child.id, child]));
  const wanted = new Set([...fresh.children].map((child) => child.id));
  const stays = (node) => node.id && wanted.has(node.id);
  let there = old.firstChild;
  for (const node of [...fresh.childNodes]) {
    const isElement = node.nodeType === Node.ELEMENT_NODE;
    // Neither what is gone nor a blank where an element comes is a partner of a node without an id.
    while (!node.id && there && (there.id ? !stays(there) : isElement && there.nodeType !== node.nodeType)) there = next(there);
    const same = node.id ? known.get(node.id) : there && !there.id && there.nodeType === node.nodeType ? there : null;
    known.delete(node.id); // an id that comes twice is one of its own the second time
    while (same && there !== same && there && !stays(there)) there = next(there);
    if (!same) { old.insertBefore(node, there); continue; } // and takes nothing away that may be alike to the next
    if (same === there) there = there.nextSibling;
    else old.insertBefore(same, there);
    if (same.nodeName !== node.nodeName) same.replaceWith(node);
    else if (!isElement) { if (same.data !== node.data) same.data = node.data; }
    else if (node.nodeName !== "TIME" || same.dateTime !== node.dateTime) morph(same, node); // else the text is ours
  }
  while (there) there = next(there);
}

// Removes a node; returns the one after it.
function next(node) {
  const after = node.nextSibling;
  node.remove();
  return after;
}

// On a phone a row is a card: each cell says which column it was in. Only there the style sheet uses it.
function nameCells(root = document) {
  for (const table of all("table", root)) {
    const heads = [...all("thead th", table)].map((head) => head.dataset.name ?? head.textContent.trim());
    if (heads.length < 4) continue;
    for (const row of all("tbody tr", table)) {
      if (row.cells.length !== heads.length) continue;
      heads.forEach((head, at) => {
        const cell = row.cells[at];
        cell.dataset.head = head;
        cell.toggleAttribute("data-blank", !cell.textContent.trim() && !one("input, progress", cell));
      });
    }
  }
}

function showLive(html) {
  const fresh = document.createElement("div");
  fresh.id = "live";
  fresh.innerHTML = html; // made by the server, which escapes everything; the policy of the page allows no script in it
  nameCells(fresh);
  const focused = document.activeElement;
  morph(one("#live"), fresh);
  if (focused.isConnected && focused !== document.activeElement) focused.focus(); // what is moved loses it
  showTimes(one("#live"));
}

// A list does not move under whoever reads it: what has changed is held back until they ask for it, or look elsewhere.
let held = null;

// Whoever points into a list, is in it by keyboard, or has gone down in it.
const reads = () => [...all("#live [data-list]")].some((list) => list.matches(":hover, :focus-within") || list.getBoundingClientRect().top < 0);
const rowsOf = (root) => [...all("[data-list] tbody tr", root)].map((row) => one('a[href^="/messages/"], a[href^="/history/"]', row)?.href ?? row.textContent);

function showOrHold(html) {
  const fresh = rowsOf(new DOMParser().parseFromString(html, "text/html"));
  const shown = rowsOf(one("#live"));
  if (!reads() || fresh.join() === shown.join()) { showNow(html); return; }
  held = html;
  const come = fresh.filter((row) => !shown.includes(row)).length;
  const text = come ? `${come.toLocaleString("en")} new in this list.` : "Some have left this list.";
  if (one("#held span").textContent !== text) one("#held span").textContent = text; // else a screen reader would say it again
  one("#held").hidden = false;
}

function showNow(html) {
  held = null;
  one("#held").hidden = true;
  showLive(html);
}

const pulse = one("[data-pulse]");
const LATE = 4000; // ms without a stream before the page says so: every stream ends after a minute, and another begins
let stream = null;
let late = 0; // the timer of that
let retry = 0;
let seenAt = new Date(); // until when what is shown was true

function follow() {
  if (document.hidden || stream || !("live" in document.body.dataset)) return;
  clearTimeout(retry);
  stream = new EventSource(`/live?page=${encodeURIComponent(document.body.dataset.address)}`);
  pulse.hidden = false;
  stream.onopen = connected;
  stream.onerror = () => {
    if (!late) {
      if (!pulse.classList.contains("off")) seenAt = new Date();
      late = setTimeout(disconnected, LATE);
    }
    if (stream.readyState === EventSource.CLOSED) { stream = null; retry = setTimeout(follow, 5000); }
  };
  stream.addEventListener("live", (event) => { connected(); showOrHold(event.data); });
  stream.addEventListener("trouble", (event) => outdated(event.data));
}

function unfollow() {
  clearTimeout(retry);
  stream?.close();
  stream = null;
}

function connected() {
  clearTimeout(late);
  late = 0;
  pulse.classList.remove("off");
  pulse.textContent = "live";
  one("#connection").hidden = true;
}

// The stream is there, and the server cannot read what it shows.
function outdated(why) {
  if (!pulse.classList.contains("off")) seenAt = new Date();
  pulse.classList.add("off");
  pulse.textContent = "not live";
  sayConnection(`${why[0].toUpperCase()}${why.slice(1)}${/[.?!]$/.test(why) ? "" : "."} What you see is from ${styles.time.format(seenAt)}. It tries again by itself.`);
}

// An event source does not say why it is refused: the page itself does.
async function disconnected() {
  pulse.classList.add("off");
  pulse.textContent = "not live";
  const shown = `What you see is from ${styles.time.format(seenAt)}.`;
  const answer = await fetch(location.href, { method: "HEAD", redirect: "manual" }).catch(() => null);
  if (!late) return; // it is back
  late = 0;
  if (answer?.type === "opaqueredirect") { unfollow(); sayConnection(`Your session has ended. ${shown}`, "Log in again"); }
  else if (answer?.status === 404) { unfollow(); sayConnection(`This is not there any more. ${shown}`); }
  else {
    sayConnection(`${answer?.ok ? "The live view is refused for now" : answer ? "Tidegate cannot read what this page shows" : "Tidegate cannot be reached"}. ${shown} It tries again by itself.`);
    late = setTimeout(disconnected, 5000);
  }
}

function sayConnection(text, link = "") {
  const place = one("#connection");
  const said = document.createElement("span");
  said.append(text, link && " ", link && Object.assign(document.createElement("a"), { href: loginAddress(), textContent: link }));
  if (place.textContent !== said.textContent) place.replaceChildren(said); // else a screen reader would say it again
  place.hidden = false;
}

const loginAddress = () => `/login?next=${encodeURIComponent(location.pathname + location.search)}`;

// A browser has few connections to one address: a page that nobody sees uses none.
document.addEventListener("visibilitychange", () => (document.hidden ? unfollow() : follow()));
addEventListener("pagehide", unfollow);
addEventListener("pageshow", follow); // also if it comes back as it was left

async function refresh() {
  if (stream && !one("#live [data-list]")) return; // it comes by itself
  const answer = await fetch(location.href, { headers: { accept: "text/html" } });
  if (answer.redirected) { location.href = answer.url; return; }
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const part = one("#live", page);
  if (part) showNow(part.innerHTML);
}

// --- notes ---

function note(text, { bad = false, undo = null } = {}) {
  const element = document.createElement("div");
  element.className = bad ? "note bad" : "note";
  element.append(Object.assign(document.createElement("span"), { textContent: text }));
  if (undo) {
    element.dataset.undo = undo.address;
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: "Undo" });
    button.onclick = async () => { element.remove(); await undo.act(); };
    element.append(button);
  }
  one("#notes").append(element);
  setTimeout(() => element.remove(), undo ? 15000 : bad ? 12000 : 5000);
}

// --- actions ---

const csrf = one("meta[name=csrf-token]");

// Whoever has logged in anew in another tab has another token there. Returns whether it is another one.
async function renewCsrf() {
  const answer = await fetch("/api/v1/session").catch(() => null);
  const fresh = answer?.ok ? (await answer.json()).csrf_token : null;
  if (!csrf || !fresh || fresh === csrf.content) return false;
  csrf.content = fresh;
  return true;
}

async function call(address, { method = "POST", body, type = "application/json" } = {}) {
  const headers = { "X-CSRF-Token": csrf?.content ?? "", accept: "application/json" };
  if (body !== undefined) headers["content-type"] = type;
  const sent = body === undefined || typeof body === "string" || body instanceof Blob ? body : JSON.stringify(body);
  let answer;
  try {
    answer = await fetch(address, { method, headers, body: sent });
  } catch {
    throw new Error("Tidegate cannot be reached: try again in a moment.");
  }
  if (answer.status === 401) {
    sayConnection("Your session has ended.", "Log in again");
    throw new Error("Your session has ended. Log in in another tab, and what you have typed here is not lost.");
  }
  if (answer.status === 403 && (await renewCsrf())) return call(address, { method, body, type });
  const content = answer.status === 204 ? null : await answer.json().catch(() => null);
  if (!answer.ok) throw Object.assign(new Error(content?.detail ?? `The server answered ${answer.status}.`), { content });
  return content;
}

function ask(text, yes) {
  const dialog = one("#confirm");
  one("#confirm-text").textContent = text;
  one("[data-yes]", dialog).textContent = yes;
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}

// What an action answers may say what to tell: {undo: address} can be taken back for a while.
function tell(done, content) {
  const act = async () => {
    try { await call(content.undo); note("Taken back."); await refresh(); } catch (error) { note(error.message, { bad: true }); }
  };
  const undo = content?.undo && { address: content.undo, act };
  if (done || undo) note(done ?? "Done.", { undo });
}

// What a button is about: its body, with the rows that are checked if it is about those, and how many things that are.
async function meantBy({ action, body, count, selected }) {
  const ids = [...all("input[name=ids]:checked")].map((input) => input.value);
  if (selected !== undefined) return { body: { ...JSON.parse(body ?? "{}"), ids }, count: ids.length };
  if (count === undefined) return { body, count: null };
  const found = await call(action, { body: { ...JSON.parse(body), dry_run: true } });
  return { body: { ...JSON.parse(body), ended_by: found.ended_by }, count: found.selected };
}

async function act(button) {
  const { action, method = "POST", confirm, done, then } = button.dataset;
  button.disabled = true;
  try {
    const meant = await meantBy(button.dataset);
    if (meant.count === 0) { note("selected" in button.dataset ? "Select something first." : "Nothing fits any more."); return; }
    const counted = (text) => text?.replaceAll("{count}", meant.count?.toLocaleString("en")).replaceAll("{messages}", meant.count === 1 ? "message" : "messages");
    if (confirm && !(await ask(counted(confirm), button.textContent.trim()))) return;
    const content = await call(action, { method, body: meant.body });
    if (then) { unfollow(); location.href = then; return; }
    for (const told of all(".note")) if (told.dataset.undo === action) told.remove();
    tell(counted(done), content);
    await refresh();
  } catch (error) {
    note(error.message, { bad: true });
  } finally {
    enable(button);
  }
}

// A button that is switched off loses the focus, and one that did what it says may be gone.
function enable(button) {
  button.disabled = false;
  if (document.activeElement === document.body) (button.isConnected ? button : one("#main")).focus();
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  if (button.dataset.action) act(button);
  else if ("themeButton" in button.dataset) changeTheme();
  else if ("showHeld" in button.dataset && held) showNow(held);
  else if ("helpButton" in button.dataset) one("#keys").showModal();
  else if ("menu" in button.dataset) {
    const open = one("#menu").classList.toggle("open");
    button.setAttribute("aria-expanded", open);
  }
});

document.addEventListener("change", (event) => {
  if (!("selectAll" in event.target.dataset)) return;
  for (const input of all("input[name=ids]")) input.checked = event.target.checked;
});

// A limit as the API writes it: calls/seconds, both whole.
function rateOf(calls, seconds) {
  return Number.isInteger(calls) ? `${calls}/${seconds}` : `1/${Number((seconds / calls).toFixed(3))}`;
}

// A form with data-api sends its fields as JSON. Empty ones are left out; data-type says what else than a text they are.
// One with data-per is a limit, which is sent if it was changed, or set before.
function fieldsOf(form) {
  const fields = {};
  for (const input of form.elements) {
    if (!input.name || input.disabled || input.type === "file" || (input.type === "radio" && !input.checked)) continue;
    if (input.type === "checkbox") { if (input.checked) fields[input.name] = true; continue; }
    const text = input.value.trim();
    if (!text) continue;
    if (input.dataset.per) {
      if (text !== input.defaultValue || input.dataset.own) fields[input.name] = rateOf(Number(text), Number(input.dataset.per));
      continue;
    }
    fields[input.name] = input.dataset.type === "number" ? Number(text) : input.dataset.type === "json" ? JSON.parse(text) : text;
  }
  return fields;
}

document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (!form.dataset.api) return;
  event.preventDefault();
  const { api, method = "POST", confirm, done, then, shows } = form.dataset;
  const button = one("button:not([type=button])", form);
  if (confirm && !(await ask(confirm, button.textContent.trim()))) return;
  button.disabled = true;
  try {
    const content = await call(api, { method, body: fieldsOf(form) });
    if (then) { location.href = then; return; }
    tell(done, content);
    if (shows) Object.assign(one("output", form), { hidden: false, textContent: content[shows] });
    else if (form.dataset.keeps) for (const input of form.elements) input.defaultValue = input.value;
    else form.reset();
    await refresh();
  } catch (error) {
    note(error.message, { bad: true });
  } finally {
    enable(button);
  }
});

// --- keys and theme ---

function changeTheme() {
  const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = document.documentElement.dataset.theme ?? (isDark ? "dark" : "light");
  const next = now === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  localStorage.setItem("theme", next);
}

let leader = 0; // when g was pressed
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea, dialog[open]")) return;
  if (Date.now() - leader < 1500) {
    leader = 0;
    const link = one(`nav a[data-key="${CSS.escape(event.key)}"]`);
    if (link) { event.preventDefault(); link.click(); return; }
  }
  if (event.key === "g") leader = Date.now();
  else if (event.key === "?") one("#keys").showModal();
  else if (event.key === "d") changeTheme();
  else if (event.key === "/") {
    const search = one("[data-search]");
    if (search) { event.preventDefault(); search.focus(); }
    else { event.preventDefault(); location.href = "/messages"; }
  }
});

showTimes();
nameCells();
setInterval(() => { showTimes(); if (held && !reads()) showNow(held); }, 1000);
follow();

// For the scripts of single pages.
window.tidegate = { ask, call, fieldsOf, note, one, all, refresh, showTimes, tell };
