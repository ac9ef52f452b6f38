// The list of other translations of a sentence.

// All versions of a sentence, the best first. If the server splits it again, its parts have the same rank.
export function listVersions(answer) {
  const parts = answer.sentences.map((one) => [{ text: one.translation, score: one.score }, ...one.alternatives]);
  const ranks = Math.max(...parts.map((versions) => versions.length), 0);
  return [...Array(ranks).keys()].map((rank) => {
    const chosen = parts.map((versions) => versions[Math.min(rank, versions.length - 1)]);
    return {
      text: chosen.map((version, place) => answer.sentences[place].before + version.text).join("") + answer.after,
      score: chosen.reduce((sum, version) => sum + version.score, 0),
    };
  });
}

function makeButton(version, choose) {
  const button = document.createElement("button");
  const score = document.createElement("span");
  score.className = "muted";
  score.textContent = version.score.toFixed(2).replace("-", "−");
  score.title = "Log-probability divided by the length penalty: the higher, the better.";
  button.type = "button";
  button.append(version.text, score);
  button.addEventListener("click", () => choose(version.text));
  return button;
}

export class Choices {
  constructor(element) {
    this.element = element;
    this.sentence = null; // the span whose versions are shown
  }

  // Shows versions below a sentence. `choose` is called with the text of the one that is clicked.
  open(sentence, versions, choose) {
    this.close();
    this.sentence = sentence;
    sentence.classList.add("open");
    const lead = document.createElement("p");
    lead.className = "muted";
    lead.textContent = versions.length ? "Other translations, with their scores" : "The search found no other translation.";
    this.element.replaceChildren(lead, ...versions.map((version) => makeButton(version, choose)));
    const boxes = sentence.getClientRects();
    const bottom = boxes[boxes.length - 1].bottom - this.element.parentElement.getBoundingClientRect().top;
    this.element.style.top = `${bottom + 6}px`;
    this.element.hidden = false;
    (this.element.querySelector("button") || sentence).focus({ preventScroll: true });
  }

  // Returns the sentence that was open.
  close() {
    const { sentence } = this;
    sentence?.classList.remove("open");
    this.sentence = null;
    this.element.hidden = true;
    return sentence;
  }
}
