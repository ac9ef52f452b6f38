"""The model card of an export: what the model is, what it was trained on, how good it is and how to use it."""

from lockstep.data.text.languages import name_language
from lockstep.translate.export_folder import ExportFacts, Parity

UNKNOWN_LICENCE = "unknown. Check it where the text comes from: it may restrict the use of the model."


def write_card(facts: ExportFacts, model_bytes: int, licence: str | None) -> str:
    """Returns the card as Markdown."""
    source, target = (name_language(code) for code in facts.languages)
    sections = [
        f"# {source} to {target}",
        f"A Transformer that translates {source} into {target}, trained with Lockstep and exported for CTranslate2.",
        _list_facts(facts, model_bytes),
        "## Quality",
        _describe_scores(facts),
        "## Training text",
        _describe_data(facts),
        f"Licence of the text: {licence or UNKNOWN_LICENCE}",
        "## Use",
        _describe_use(facts),
        "## Limits",
        f"Sentences of up to {facts.limit:,} pieces were seen in training. `lockstep translate` splits longer text into "
        "sentences; programs that use CTranslate2 directly have to do it themselves. The model knows the kind of text it "
        "was trained on. It can be wrong, also where it sounds fluent.",
    ]
    return "\n\n".join(sections) + "\n"


def _list_facts(facts: ExportFacts, model_bytes: int) -> str:
    size = facts.model
    steps = ", ".join(f"{step:,}" for step in facts.steps) or "not known"
    averaged = f" (mean of {len(facts.steps)} checkpoints)" if len(facts.steps) > 1 else ""
    rows = {
        "languages": f"{facts.languages[0]} to {facts.languages[1]}",
        "run, step": f"{facts.run}, {steps}{averaged}",
        "parameters": f"{facts.parameters:,}",
        "layers": f"{size.get('encoder_layers')} in the encoder, {size.get('decoder_layers')} in the decoder",
        "width, heads": f"{size.get('width')}, {size.get('heads')}",
        "file": f"model.bin, {model_bytes / 1e6:,.1f} MB, quantization: {facts.quantization}",
        "search": f"beam {facts.search['beam']}, length penalty {facts.search['length_penalty']}",
        "made with": ", ".join(f"{name} {version}" for name, version in facts.versions.items()),
    }
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {text} |" for name, text in rows.items())])


def _describe_scores(facts: ExportFacts) -> str:
    lines = []
    bleu = facts.scores.get("sacrebleu")
    if isinstance(bleu, int | float):
        lines.append(
            f"sacreBLEU {bleu:.2f} on the validation text, in training (`{facts.scores.get('signature')}`). The checkpoint "
            "may have been chosen by this score: measure a test text with `lockstep evaluate`."
        )
    elif len(facts.steps) > 1:
        lines.append("The mean of several checkpoints was not evaluated in training: see `lockstep evaluate`.")
    else:
        lines.append("No evaluation in training is known: see `lockstep evaluate`.")
    lines.append(describe_parity(facts.parity))
    return "\n\n".join(lines)


def describe_parity(parity: Parity | None) -> str:
    """Returns a sentence on how the export agrees with the trainer."""
    if parity is None:
        return "The export was not compared with the trainer: no held-out text was there."
    same = f"{parity.identical} of {parity.sentences} translations"
    return (
        f"Compared with the trainer on {parity.text}: {same} are identical, sacreBLEU {parity.bleu_of_export:.2f} "
        f"instead of {parity.bleu_of_trainer:.2f} (`{parity.signature}`)."
    )


def _describe_data(facts: ExportFacts) -> str:
    if not facts.data:
        return "Not known: the model was exported without its run."
    files = facts.data.get("files")
    listed = [
        f"- {file['name']} ({file['set']}), {file['bytes']:,} bytes, SHA-256 {file.get('sha256') or 'not known'}"
        for file in (files if isinstance(files, list) else [])
        if isinstance(file, dict)
    ]
    size = f"{facts.data['pairs']:,} sentence pairs, {facts.data['target_words']:,} target words"
    return "\n".join([f"{size}; SHA-256 of the prepared text: `{facts.data['digest']}`.", "", *listed]).strip()


def _describe_use(facts: ExportFacts) -> str:
    return f"""```
pip install 'lockstep-train[edge]'
lockstep translate FOLDER "..."
lockstep serve FOLDER
```

Without Lockstep, with `ctranslate2` and `sentencepiece` alone:

```python
import ctranslate2, sentencepiece

pieces = sentencepiece.SentencePieceProcessor("FOLDER/sentencepiece.model")
model = ctranslate2.Translator("FOLDER")
(result,) = model.translate_batch(
    [pieces.encode("...", out_type=str)],
    beam_size={facts.search["beam"]},
    length_penalty={facts.search["length_penalty"]},
    max_decoding_length={min(facts.positions, 256)},
)
print(pieces.decode(result.hypotheses[0]))
```"""
