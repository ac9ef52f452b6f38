// The page: asks for translations while the user types, and shows what the server answers.

import { Alignment } from "./alignment.js";
import { Choices, listVersions } from "./choices.js";
import { Refusal, ask, hasKey, keepKey, pause, waitForServer } from "./server.js";

const TYPING_PAUSE = 150; // milliseconds without typing before a short text is sent
const LONGEST_PAUSE = 800;
const GONE = "The server does not answer. Reconnecting …";

const find = (id) => document.getElementById(id);
const [source, target, mirror] = ["source", "target", "mirror"].map(find);
const [sourceLanguage, targetLanguage, problem, keyForm] = ["source-language", "target-language", "problem", "key-form"].map(find);
const alignment = new Alignment(mirror, target);
const choices = new Choices(find("choices"));

let settings = null;
let sentences = []; // of the translation that is shown
let after = "";
let timer = null;
let controller = null; // of the request that runs
let isReconnecting = false;

const countCharacters = (text) => [...text].length;
const translation = () => sentences.map((one) => one.before + one.translation).join("") + after;

function showProblem(message) {
  problem.textContent = message || "";
  problem.hidden = !message;
}

function showWork(message) {
  find("work").textContent = message;
  document.body.classList.toggle("working", Boolean(message));
}

// A translation of an earlier text is shown pale.
const markStale = (isStale) => document.body.classList.toggle("stale", isStale);

function showCounter() {
  const [count, most] = [countCharacters(source.value), settings ? settings.characters : 0];
  find("counter").textContent = `${count.toLocaleString("en")} / ${most.toLocaleString("en")} characters`;
  find("counter").classList.toggle("over", count > most);
  find("clear").disabled = !source.value;
  return count <= most;
}

function showSpeed(answer, milliseconds) {
  const rate = answer.words / (answer.milliseconds / 1000);
  const shown = rate >= 10 ? Math.round(rate).toLocaleString("en") : rate.toFixed(1);
  find("speed").textContent = `${Math.round(milliseconds).toLocaleString("en")} ms · ${shown} words/s`;
}

function showSentences() {
  const spans = alignment.show(sentences, after);
  spans.forEach((span, place) => {
    span.dataset.place = place;
    span.tabIndex = 0;
    span.role = "button";
    span.ariaHasPopup = "dialog";
  });
  find("copy").disabled = !translation().trim();
  markStale(false);
}

function clearTranslation() {
  sentences = [];
  after = "";
  alignment.clearTarget();
  alignment.showPlain(source.value);
  find("speed").textContent = "";
  find("copy").disabled = true;
  markStale(false);
}

// Translates the text now. An earlier request is aborted.
async function translate() {
  clearTimeout(timer);
  controller?.abort();
  choices.close();
  showProblem("");
  showWork("");
  if (!settings) return;
  const text = source.value;
  if (!text.trim()) {
    clearTranslation();
    return;
  }
  if (!showCounter()) {
    showProblem(`The text is too long: at most ${settings.characters.toLocaleString("en")} characters are translated at once.`);
    return;
  }
  const own = (controller = new AbortController());
  const begin = performance.now();
  showWork("Translating …");
  try {
    const body = { text, source: sourceLanguage.value, target: targetLanguage.value };
    const answer = await ask("page/translate", body, own.signal);
    if (own !== controller || text !== source.value) return;
    ({ sentences, after } = answer);
    showSentences();
    showSpeed(answer, performance.now() - begin);
    showWork("");
  } catch (error) {
    if (own === controller && error.name !== "AbortError") handle(error);
  }
}

function handle(error) {
  showWork("");
  if (!(error instanceof Refusal)) {
    reconnect();
  } else if (error.status === 403) {
    askForKey(error.message);
  } else if (error.status === 429) {
    showWork("The server is busy …");
    timer = setTimeout(translate, 1000);
  } else {
    showProblem(error.message);
  }
}

// Waits until the server answers again, then continues.
async function reconnect() {
  showProblem(GONE);
  if (isReconnecting) return;
  isReconnecting = true;
  await waitForServer(() => showProblem(GONE));
  isReconnecting = false;
  await (settings ? translate() : start());
}

function askForKey(message) {
  keyForm.hidden = false;
  keyForm.querySelector("label").textContent = message;
  find("key").focus();
}

function schedule() {
  markStale(true);
  alignment.showPlain(source.value);
  showCounter();
  clearTimeout(timer);
  timer = setTimeout(translate, Math.min(LONGEST_PAUSE, TYPING_PAUSE + source.value.length / 20));
}

function fillSelect(select, languages, wanted) {
  select.replaceChildren(...languages.map((language) => new Option(language.name, language.code)));
  if (languages.some((language) => language.code === wanted)) select.value = wanted;
  select.disabled = languages.length < 2;
}

const findDirection = (from, to) => settings.directions.find((one) => one.source.code === from && one.target.code === to);

function unique(languages) {
  return [...new Map(languages.map((language) => [language.code, language])).values()];
}

function chooseDirection(from, to) {
  fillSelect(sourceLanguage, unique(settings.directions.map((one) => one.source)), from);
  const targets = settings.directions.filter((one) => one.source.code === sourceLanguage.value).map((one) => one.target);
  fillSelect(targetLanguage, targets, to);
  source.lang = mirror.lang = sourceLanguage.value;
  target.lang = targetLanguage.value;
  find("switch").disabled = !findDirection(targetLanguage.value, sourceLanguage.value);
  const { has_alignment: hasAlignment } = findDirection(sourceLanguage.value, targetLanguage.value);
  const point = hasAlignment ? "Point at a word, or tap it, to see what belongs to it. " : "";
  find("hint").textContent = `${point}Click a sentence of the translation for alternatives. Ctrl+Enter translates at once.`;
}

function switchDirection() {
  const text = translation();
  chooseDirection(targetLanguage.value, sourceLanguage.value);
  if (text.trim()) source.value = text;
  clearTranslation();
  showCounter();
  translate();
}

async function copy() {
  const button = find("copy");
  const text = translation();
  if (window.isSecureContext) {
    await navigator.clipboard.writeText(text);
  } else {
    const helper = document.createElement("textarea");
    helper.value = text;
    button.after(helper);
    helper.select();
    document.execCommand("copy");
    helper.remove();
    button.focus();
  }
  button.textContent = "Copied";
  await pause(1500);
  button.textContent = "Copy";
}

async function openChoices(span) {
  choices.close();
  const sentence = sentences[span.dataset.place];
  const body = { text: sentence.source, source: sourceLanguage.value, target: targetLanguage.value };
  try {
    const answer = await ask("page/translate", { ...body, alternatives: settings.alternatives });
    const others = listVersions(answer).filter((version) => version.text !== sentence.translation);
    if (span.isConnected) choices.open(span, others, (text) => replaceSentence(span.dataset.place, text));
  } catch (error) {
    handle(error);
  }
}

function replaceSentence(place, text) {
  Object.assign(sentences[place], { translation: text, words: null });
  choices.close();
  showSentences();
  target.querySelector(`[data-place="${place}"]`).focus();
}

function useKey(event) {
  event.preventDefault();
  keepKey(find("key").value.trim());
  find("key").value = "";
  keyForm.hidden = true;
  translate();
  source.focus();
}

function handleKeys(event) {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) translate();
  if (event.key === "Escape") choices.close()?.focus();
}

const findUnder = (event) =>
  document.elementsFromPoint(event.clientX, event.clientY).find((element) => mirror.contains(element) && element !== mirror);

function listen() {
  source.addEventListener("input", schedule);
  for (const name of ["pointermove", "click"]) source.addEventListener(name, (event) => alignment.highlight(findUnder(event)));
  for (const name of ["pointermove", "focusin"]) target.addEventListener(name, (event) => alignment.highlight(event.target));
  for (const side of [source, target]) side.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && alignment.fade());
  target.addEventListener("click", (event) => {
    const span = event.target.closest(".sentence");
    alignment.highlight(event.target);
    if (span) openChoices(span);
  });
  target.addEventListener("keydown", (event) => {
    if (!["Enter", " "].includes(event.key) || event.ctrlKey || !event.target.matches(".sentence")) return;
    event.preventDefault();
    openChoices(event.target);
  });
  document.addEventListener("keydown", handleKeys);
  document.addEventListener("pointerdown", (event) => {
    if (!choices.element.contains(event.target)) choices.close();
  });
  for (const select of [sourceLanguage, targetLanguage]) {
    select.addEventListener("change", () => {
      chooseDirection(sourceLanguage.value, targetLanguage.value);
      translate();
    });
  }
  find("switch").addEventListener("click", switchDirection);
  find("copy").addEventListener("click", copy);
  find("clear").addEventListener("click", () => {
    source.value = "";
    showCounter();
    translate();
    source.focus();
  });
  keyForm.addEventListener("submit", useKey);
}

async function start() {
  try {
    settings = await ask("page/settings");
  } catch (error) {
    handle(error);
    return;
  }
  find("version").textContent = `Lockstep ${settings.version}`;
  chooseDirection();
  showCounter();
  alignment.showPlain(source.value);
  if (settings.is_key_required && !hasKey()) askForKey("This server needs an API key.");
  else translate();
}

listen();
start();
