"""An export computes what the trainer's model computes, and its search finds the same translations."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from lockstep.data.corpus.vocabulary import Vocabulary, train
from lockstep.data.data_settings import VocabularySettings
from lockstep.errors import LockstepError
from lockstep.models.model_settings import TransformerSettings
from lockstep.models.packed import Layout
from lockstep.models.transformer import Transformer
from lockstep.translate.ctranslate2_engine import CTranslate2Engine, import_ctranslate2
from lockstep.translate.export_ctranslate2 import count_positions, make_spec, write_model
from lockstep.translate.search_engine import find_limits
from lockstep.translate.search_settings import SearchSettings
from lockstep.translate.torch_engine import TorchEngine

SHAPES = [
    TransformerSettings(encoder_layers=2, decoder_layers=2, width=32, feed_forward=48, heads=4, norm="pre"),
    TransformerSettings(encoder_layers=2, decoder_layers=2, width=32, feed_forward=48, heads=4, norm="post"),
    TransformerSettings(encoder_layers=3, decoder_layers=1, width=24, feed_forward=40, heads=2, norm="pre"),
]
POSITIONS = 600
EACH_SHAPE = pytest.mark.parametrize("settings", SHAPES, ids=["pre-norm", "post-norm", "deep encoder"])


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    words = [a + b for a in "bdgkl" for b in "aeiou"]
    sentences = [" ".join(words[(7 * i + j * j) % len(words)] for j in range(8)) for i in range(100)]
    return Vocabulary(train(VocabularySettings(size=300), sentences))


def make_model(settings: TransformerSettings, vocabulary: Vocabulary, seed: int = 0) -> Transformer:
    """A random model, also in its biases and norms, whose next pieces differ clearly in probability."""
    torch.manual_seed(seed)
    model = Transformer(settings, vocabulary.size).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


def save(model: Transformer, vocabulary: Vocabulary, folder: Path, quantization: str = "none") -> Path:
    weights = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    folder.mkdir()
    table = model.positional_encoding(POSITIONS)[:POSITIONS].numpy()
    write_model(folder, make_spec(model.settings, weights, vocabulary, table), quantization)
    return folder


def draw_sentences(count: int, vocabulary: Vocabulary, seed: int = 1) -> list[list[int]]:
    draw = np.random.default_rng(seed)
    return [draw.integers(4, vocabulary.size, draw.integers(0, 14)).tolist() for _ in range(count)]


@torch.inference_mode()
def compute_log_probabilities(model: Transformer, source: list[int], prefix: list[int]) -> torch.Tensor:
    """The log-probabilities of every piece after the prefix, `[vocabulary]`."""
    layouts = [Layout.from_lengths(np.array([len(ids) + 1])) for ids in (source, prefix)]
    ids = torch.tensor([*source, Vocabulary.eos]), torch.tensor([Vocabulary.bos, *prefix])
    return model.logits(model(ids[0], layouts[0], ids[1], layouts[1]))[-1].log_softmax(-1)


@EACH_SHAPE
def test_an_export_gives_every_piece_the_probability_that_the_trainer_gives_it(
    settings: TransformerSettings, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    model = make_model(settings, vocabulary)
    folder = save(model, vocabulary, tmp_path / "export")
    translator = import_ctranslate2().Translator(str(folder), device="cpu")
    for source, prefix in zip(draw_sentences(4, vocabulary), draw_sentences(4, vocabulary, seed=2), strict=True):
        expected = compute_log_probabilities(model, source, prefix)
        targets = [vocabulary.to_pieces([*prefix, piece]) for piece in range(vocabulary.size)]
        results = translator.score_batch([vocabulary.to_pieces(source)] * len(targets), targets)
        given = torch.tensor([result.log_probs[len(prefix)] for result in results])
        assert (given - expected).abs().max() < 1e-4


def test_tied_embeddings_are_stored_once(vocabulary: Vocabulary, tmp_path: Path) -> None:
    model = make_model(SHAPES[0], vocabulary)
    folder = save(model, vocabulary, tmp_path / "export")
    size = 4 * (sum(p.numel() for p in model.parameters()) + POSITIONS * SHAPES[0].width)
    assert size < (folder / "model.bin").stat().st_size < size + 10_000


@pytest.mark.parametrize(
    ("limit", "max_words", "expected"), [(100, 512, 512), (900, 512, 901), (400, None, 812), (60_000, None, 8192)]
)
def test_an_export_has_positions_for_the_longest_sentences(limit: int, max_words: int | None, expected: int) -> None:
    assert count_positions(limit, SearchSettings(max_words=max_words)) == expected


@EACH_SHAPE
@pytest.mark.parametrize("beam", [1, 4])
def test_both_searches_find_the_same_translations(
    settings: TransformerSettings, vocabulary: Vocabulary, tmp_path: Path, beam: int
) -> None:
    """Random models rarely end a sentence, so most of these reach their limit, and each its own."""
    model = make_model(settings, vocabulary)
    engine = CTranslate2Engine(save(model, vocabulary, tmp_path / "export"), vocabulary.pieces, POSITIONS, device="cpu")
    sentences = draw_sentences(80, vocabulary)
    search = SearchSettings(beam=beam, max_ratio=1.0, length_penalty=1.0)
    ours = [best[0] for best in TorchEngine(model).search(sentences, search)]
    theirs = [best[0] for best in engine.search(sentences, search)]
    same = [a.ids == b.ids for a, b in zip(ours, theirs, strict=True)]
    assert sum(same) >= 0.97 * len(same)
    pairs = [(a.score, b.score) for a, b, is_same in zip(ours, theirs, same, strict=True) if is_same and a.ids]
    assert [a for a, _ in pairs] == pytest.approx([b for _, b in pairs], abs=1e-3)
    limits = find_limits([len(sentence) + 1 for sentence in sentences], search)
    assert all(len(one.ids) <= limit for one, limit in zip(theirs, limits, strict=True))


def test_attention_has_a_row_for_each_piece_and_a_column_for_each_source_piece(
    vocabulary: Vocabulary, tmp_path: Path
) -> None:
    folder = save(make_model(SHAPES[0], vocabulary), vocabulary, tmp_path / "export")
    engine = CTranslate2Engine(folder, vocabulary.pieces, POSITIONS, device="cpu")
    sentences = draw_sentences(10, vocabulary)
    for sentence, best in zip(sentences, engine.search(sentences, SearchSettings(), 2, True), strict=True):
        for one in best:
            assert one.attention is not None
            assert one.attention.shape == (len(one.ids), len(sentence))
            assert (one.attention.sum(1) <= 1 + 1e-4).all()


def test_a_sentence_beyond_the_position_table_is_refused(vocabulary: Vocabulary, tmp_path: Path) -> None:
    folder = save(make_model(SHAPES[0], vocabulary), vocabulary, tmp_path / "export")
    engine = CTranslate2Engine(folder, vocabulary.pieces, POSITIONS, device="cpu")
    with pytest.raises(LockstepError, match="601 pieces is longer than the 600 positions"):
        engine.search([[5] * 600], SearchSettings())


def test_more_translations_than_hypotheses_are_refused(vocabulary: Vocabulary, tmp_path: Path) -> None:
    model = make_model(SHAPES[0], vocabulary)
    folder = save(model, vocabulary, tmp_path / "export")
    for engine in (TorchEngine(model), CTranslate2Engine(folder, vocabulary.pieces, POSITIONS, device="cpu")):
        with pytest.raises(LockstepError, match="A beam of 4 cannot find the 5 best"):
            engine.search([[5]], SearchSettings(), n_best=5)


@pytest.mark.parametrize("quantization", ["int8", "int8_bfloat16", "float16", "bfloat16"])
def test_a_quantized_export_is_smaller_and_translates(
    quantization: str, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    model = make_model(SHAPES[0], vocabulary)
    plain, small = (save(model, vocabulary, tmp_path / name, name) for name in ("none", quantization))
    assert (small / "model.bin").stat().st_size < 0.9 * (plain / "model.bin").stat().st_size
    engine = CTranslate2Engine(small, vocabulary.pieces, POSITIONS, device="cpu")
    assert engine.search([[5, 6, 7]], SearchSettings(max_ratio=1.0))[0][0].ids


def test_a_model_with_unknown_weights_is_not_exported(vocabulary: Vocabulary) -> None:
    weights = {name: tensor.numpy() for name, tensor in make_model(SHAPES[0], vocabulary).state_dict().items()}
    with pytest.raises(ValueError, match="no place for decoder.9.bias"):
        make_spec(
            SHAPES[0], weights | {"decoder.9.bias": np.zeros(3)}, vocabulary, np.zeros((POSITIONS, 32), np.float32)
        )


def test_the_config_tells_ctranslate2_to_end_the_source(vocabulary: Vocabulary, tmp_path: Path) -> None:
    config = json.loads(
        (save(make_model(SHAPES[0], vocabulary), vocabulary, tmp_path / "x") / "config.json").read_text()
    )
    assert config["add_source_eos"] is True
    assert (config["bos_token"], config["decoder_start_token"], config["eos_token"]) == ("<s>", "<s>", "</s>")
