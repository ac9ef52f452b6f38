// Draws the text and its translation word by word, and shows which words belong together.

const LEAST_SHOWN = 0.15;
// A link is drawn at least this strong, so that it can be seen.

function makeSpan(name, text = "") {
  const span = document.createElement("span");
  span.className = name;
  span.textContent = text;
  return span;
}

// Appends a text with a span for each of its words, and returns the spans.
function appendWords(parent, text, words) {
  const spans = [];
  let end = 0;
  for (const word of words) {
    const begin = text.indexOf(word, end);
    if (begin < 0) continue;
    parent.append(text.slice(end, begin));
    const span = makeSpan("word", word);
    parent.append(span);
    spans.push(span);
    end = begin + word.length;
  }
  parent.append(text.slice(end));
  return spans;
}

export class Alignment {
  // `mirror` lies behind the input and has its text; `target` has the translation.
  constructor(mirror, target) {
    this.mirror = mirror;
    this.target = target;
    this.links = new Map(); // word span -> [[span of the other side, weight], ...]
    this.partners = new Map(); // sentence span -> span of the other side
  }

  // Shows a text that is not translated yet. The line feed keeps the last line of the input in view.
  showPlain(text) {
    this.forget();
    this.mirror.replaceChildren(`${text}\n`);
  }

  clearTarget() {
    this.forget();
    this.target.replaceChildren();
  }

  // Shows all sentences of an answer. Returns the sentences' spans in the translation.
  show(sentences, after) {
    this.forget();
    this.mirror.replaceChildren();
    this.target.replaceChildren();
    const spans = sentences.map((sentence) => this.showSentence(sentence));
    this.mirror.append(`${after}\n`);
    this.target.append(after);
    return spans;
  }

  showSentence(sentence) {
    const words = sentence.words || { source: [], target: [], links: [] };
    const source = makeSpan("sentence");
    const target = makeSpan("sentence");
    const sourceWords = appendWords(source, sentence.source, words.source);
    const targetWords = appendWords(target, sentence.translation, words.target);
    for (const [to, from, weight] of words.links) this.link(targetWords[to], sourceWords[from], weight);
    this.partners.set(source, target).set(target, source);
    this.mirror.append(sentence.before, source);
    this.target.append(sentence.before, target);
    return target;
  }

  link(target, source, weight) {
    if (!target || !source) return;
    for (const [one, other] of [[target, source], [source, target]]) {
      if (!this.links.has(one)) this.links.set(one, []);
      this.links.get(one).push([other, weight]);
    }
  }

  // Highlights what belongs to an element: the sentence around it, and the words that a word is linked to.
  highlight(element) {
    const word = element?.closest(".word") || null;
    const sentence = element?.closest(".sentence") || null;
    if (word === this.word && sentence === this.sentence) return;
    this.fade();
    this.word = word;
    this.sentence = sentence;
    for (const span of [sentence, this.partners.get(sentence)]) span?.classList.add("near");
    if (!this.links.has(word)) return;
    word.classList.add("chosen");
    for (const [other, weight] of this.links.get(word)) {
      other.classList.add("linked");
      other.style.setProperty("--weight", Math.max(LEAST_SHOWN, Math.min(1, weight)));
    }
  }

  fade() {
    this.word = this.sentence = null;
    for (const side of [this.mirror, this.target]) {
      side.querySelectorAll(".near, .chosen, .linked").forEach((span) => span.classList.remove("near", "chosen", "linked"));
    }
  }

  forget() {
    this.fade();
    this.links.clear();
    this.partners.clear();
  }
}
