// A new broadcast: a preview of what is typed or chosen, and then the upload of all of it.

const { ask, call, note, one } = window.tidegate;

const BEGINNING = 500_000; // bytes of a file that are previewed
const COUNTED = 64_000_000; // bytes of a file whose lines are counted; of a larger one they are estimated
const TYPES = { tsv: "text/tab-separated-values", tab: "text/tab-separated-values", ndjson: "application/x-ndjson", jsonl: "application/x-ndjson" };

const form = one("#broadcast");
const begin = form && one("[data-begin]", form);
const seen = form && one("[data-seen]", form);
let previewed = null; // what the preview was of: something else has to be previewed again

function make(tag, text, attributes = {}) {
  return Object.assign(document.createElement(tag), text === undefined ? {} : { textContent: text }, attributes);
}

const typeOf = (file) => TYPES[file.name.split(".").pop().toLowerCase()] ?? "text/csv";
const chosen = () => form.elements.file.files[0] ?? null;

function state() {
  const file = chosen();
  const { name, bot, text, parse_mode, priority, audience } = form.elements;
  const parts = [name.value, bot.value, text.value, parse_mode.value, priority.value];
  return JSON.stringify(file ? [...parts, file.name, file.size, file.lastModified] : [...parts, audience.value]);
}

function changed() {
  begin.disabled = previewed === null || previewed !== state();
}

async function rowsOf(file) {
  const part = file.slice(0, COUNTED);
  let lines = 0;
  const reader = part.stream().getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    for (let at = value.indexOf(10); at >= 0; at = value.indexOf(10, at + 1)) lines += 1;
  }
  const names = /^[^\n]*\bchat_id\b/i.test(await file.slice(0, BEGINNING).text()) && !/json/.test(typeOf(file)); // no row
  return Math.max(1, Math.round((lines * file.size) / part.size) - names);
}

async function draft() {
  const { bot, text, parse_mode, priority, audience } = form.elements;
  const about = { bot: Number(bot.value), priority: priority.value };
  if (text.value.trim()) about.text = text.value;
  if (parse_mode.value) about.parse_mode = parse_mode.value;
  const file = chosen();
  if (!file) return { ...about, content: audience.value };
  const is_whole = file.size <= BEGINNING;
  const content = await file.slice(0, BEGINNING).text();
  return is_whole ? { ...about, content } : { ...about, content, is_whole, rows: await rowsOf(file) };
}

function words(seconds) {
  if (seconds < 1) return "less than a second";
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return `${(seconds / 3600).toFixed(1)} h`;
}

function showPreview(found, file) {
  const { messages, seconds, per_second, ends_at } = found.forecast;
  const number = new Intl.NumberFormat(undefined, { maximumFractionDigits: 1 });
  const when = new Date(ends_at * 1000);
  const style = when.toDateString() === new Date().toDateString() ? { timeStyle: "short" } : { dateStyle: "medium", timeStyle: "short" };
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const about = file && file.size > BEGINNING ? "About " : "";
  const text = `${about}${number.format(messages)} ${messages === 1 ? "message" : "messages"} at ${number.format(per_second)} a second ${messages === 1 ? "takes" : "take"} ${words(seconds)}; begun now, the last one leaves at ${new Intl.DateTimeFormat(undefined, style).format(when)} (${zone}), if nothing else is sent.`;
  seen.replaceChildren(make("h2", "Preview"));
  if (!found.bad && !found.good) seen.append(make("p", "There is nobody in the audience: put a chat in each line below the names of the columns.", { className: "trouble bad" }));
  else if (!found.bad) seen.append(make("p", text, { className: "sentence" }));
  else {
    const part = file && file.size > BEGINNING ? " in the beginning of the file" : "";
    seen.append(make("p", `${number.format(found.bad)} ${found.bad === 1 ? "row is" : "rows are"} bad${part}: nothing is sent until all rows are good.`, { className: "trouble bad" }));
    const list = make("ul", undefined, { className: "bad-rows" });
    for (const { line, detail } of found.errors) list.append(make("li", `Line ${line}: ${detail}`));
    seen.append(list);
  }
  for (const { line, chat_id, text: filled } of found.messages) {
    const figure = make("figure", undefined, { className: "bubble" });
    figure.append(make("figcaption", `Line ${line}, to ${chat_id}`), make("p", filled));
    seen.append(figure);
  }
  const left = found.good - found.messages.length;
  if (left > 0) seen.append(make("p", `and ${number.format(left)} more${about ? " in what was looked at" : ""}.`, { className: "dim" }));
}

function showError(error) {
  seen.replaceChildren(make("h2", "Preview"), make("p", error.message, { className: "trouble bad", role: "alert" }));
  const list = make("ul", undefined, { className: "bad-rows" });
  for (const { line, field, detail } of error.content?.errors ?? []) list.append(make("li", line ? `Line ${line}: ${detail}` : `${field}: ${detail}`));
  if (list.children.length) seen.append(list);
}

async function preview() {
  const file = chosen();
  if (!file && !form.elements.audience.value.trim()) { note("Say who gets it: paste a list, or choose a file.", { bad: true }); return; }
  const button = one("[data-preview]", form);
  button.disabled = true;
  previewed = null;
  const now = state();
  try {
    const found = await call("/api/v1/broadcasts/preview", { body: await draft() });
    showPreview(found, file);
    if (!found.bad && found.good) previewed = now;
  } catch (error) {
    showError(error);
  } finally {
    button.disabled = false;
    changed();
    if (seen.getBoundingClientRect().top > innerHeight / 2) seen.scrollIntoView(); // on a phone it is below the form
  }
}

// Not by fetch: it says nothing of how much of a body has left.
function upload(address, body, type) {
  const shown = one("[data-sending]", form);
  const [bar, text] = [one("progress", shown), one("span", shown)];
  shown.hidden = false;
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("POST", address);
    request.setRequestHeader("X-CSRF-Token", one("meta[name=csrf-token]")?.content ?? "");
    request.setRequestHeader("content-type", type);
    request.responseType = "json";
    request.upload.onprogress = ({ loaded, total }) => {
      bar.value = total ? loaded / total : 0;
      text.textContent = loaded < total ? `${Math.floor((100 * loaded) / total)} % sent` : "sent; the rows are being checked and stored";
    };
    request.onload = () => {
      shown.hidden = true;
      if (request.status < 300) resolve(request.response);
      else reject(Object.assign(new Error(request.response?.detail ?? `The server answered ${request.status}.`), { content: request.response }));
    };
    request.onerror = () => { shown.hidden = true; reject(new Error("Tidegate cannot be reached: try again. The same file under the same name goes on where it was.")); };
    request.send(body);
  });
}

async function start() {
  const { name, bot, text, parse_mode, priority, audience } = form.elements;
  if (!(await ask(`Begin the broadcast ${name.value}?`, "Begin"))) return;
  const query = new URLSearchParams({ bot: bot.value, priority: priority.value });
  if (text.value.trim()) query.set("text", text.value);
  if (parse_mode.value) query.set("parse_mode", parse_mode.value);
  const file = chosen();
  const isJson = !file && audience.value.trimStart().startsWith("{");
  const type = file ? typeOf(file) : isJson ? TYPES.ndjson : "text/csv";
  begin.disabled = true;
  try {
    const body = file ?? new Blob([audience.value]);
    const view = await upload(`/api/v1/broadcasts/${encodeURIComponent(name.value)}/upload?${query}`, body, type);
    location.href = `/broadcasts/${encodeURIComponent(view.name)}?bot=${view.bot}`;
  } catch (error) {
    showError(error);
    note(error.message, { bad: true });
    changed();
  }
}

if (form) {
  form.addEventListener("submit", (event) => { event.preventDefault(); preview(); });
  form.addEventListener("input", changed);
  form.addEventListener("change", changed);
  begin.addEventListener("click", start);
}
