"""Control tokens of the families of chat models in use, and small tokenizers that hold them as those do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
BRACKETS = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'system' %}"
    "[SYSTEM_PROMPT]{{ message['content'] }}[/SYSTEM_PROMPT]{% else %}[INST]{{ message['content'] }}[/INST]{% endif %}"
    "{% endfor %}"
)
TURNS = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'system' %}"
    "{{ raise_exception('System role not supported') }}{% endif %}"
    "<start_of_turn>{{ message['role'] }}\n{{ message['content'] | trim }}<end_of_turn>\n{% endfor %}"
    "<start_of_turn>model\n"
)
GLM = (
    "[gMASK]<sop>{% for message in messages %}<|{{ message['role'] }}|>\n{{ message['content'] }}{% endfor %}"
    "<|assistant|>\n"
)
EXAONE = (
    "{% for message in messages %}[|{{ message['role'] }}|]{{ message['content'].strip() }}[|endofturn|]\n{% endfor %}"
    "[|assistant|]"
)
DEEPSEEK = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'system' %}{{ message['content'] }}{% else %}"
    "<｜User｜>{{ message['content'] }}{% endif %}{% endfor %}<｜Assistant｜>"
)
PLAIN = (
    "A chat.{% for message in messages %}{% if message['role'] == 'user' %} USER: {{ message['content'] }}"
    "{% else %} {{ message['content'] }}{% endif %}{% endfor %} ASSISTANT:"
)


class Family(NamedTuple):
    """A family's tokens: those that its tokenizer names, other special ones, and added ones that are not special."""

    template: str | None
    named: dict[str, str]
    special: Sequence[str]
    added: Sequence[str] = ()

    @property
    def tokens(self) -> list[str]:
        return list(dict.fromkeys([*self.named.values(), *self.special, *self.added]))


FAMILIES = {
    "chatml": Family(
        CHATML,
        {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"},
        ["<|im_start|>", "<|vision_start|>", "<|fim_prefix|>", "<|image_pad|>"],
        ["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"],
    ),
    "mistral": Family(
        BRACKETS,
        {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"},
        ["[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[THINK]", "[/THINK]", "[TOOL_CONTENT]", "[ARGS]"],
        ["[AVAILABLE_TOOLS]", "[CALL_ID]", "[IMG_BREAK]", "<SPECIAL_20>"],
    ),
    "gemma": Family(
        TURNS,
        {"bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>"},
        ["<start_of_turn>", "<end_of_turn>"],
        ["<start_of_image>", "<end_of_image>", "<unused7>", "[@BOS@]", "<2mass>", "<table>", "\n\n", "▁▁"],
    ),
    "glm": Family(
        GLM,
        {"eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>"},
        [
            "[gMASK]",
            "[sMASK]",
            "[MASK]",
            "<sop>",
            "<eop>",
            "<|system|>",
            "<|user|>",
            "<|assistant|>",
            "<|observation|>",
        ],
        ["/nothink", "<arg_key>", "</arg_value>", "<think>"],
    ),
    "exaone": Family(
        EXAONE,
        {"bos_token": "[BOS]", "eos_token": "[|endofturn|]", "pad_token": "[PAD]"},
        ["[|system|]", "[|user|]", "[|assistant|]", "[|tool|]"],
        ["<thought>", "</thought>"],
    ),
    "deepseek": Family(
        DEEPSEEK,
        {"bos_token": "<｜begin▁of▁sentence｜>", "eos_token": "<｜end▁of▁sentence｜>"},
        ["<｜User｜>", "<｜Assistant｜>", "<｜▁pad▁｜>"],
        ["<think>", "｜DSML｜", "<dsml:", "</dsml:", "<｜tool▁calls▁begin｜>"],
    ),
    "minimax": Family(
        None,
        {"bos_token": "]~!b[", "eos_token": "[e~["},
        ["]~b]", "]!p~[", "]<]start of image[>["],
        ["<minimax:tool_call>"],
    ),
    "falcon": Family(None, {"eos_token": "<|endoftext|>"}, [">>QUESTION<<", ">>ANSWER<<", ">>TITLE<<"]),
    "llama2": Family(PLAIN, {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}, []),
    "t5": Family(
        None, {"eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}, ["<extra_id_0>", "<extra_id_99>"]
    ),
    "bert": Family(
        None, {"unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]"}, ["[MASK]"]
    ),
}
_SPELLED = (
    "<|begin_of_text|> <|eot_id|> <|start_header_id|> <|reserved_special_token_5|> <|python_tag|> <|header_start|>"
    " <<SYS>> <</SYS>> [SYS] [INST] [/INST] <|user|> <|end|> <|assistant|> <|tool|> <|start|> <|channel|> <|message|>"
    " <|return|> <|im_user|> <|im_middle|> <|tool_calls_section_begin|> [EOT] [start_header_id] [end_header_id]"
    " <|START_OF_TURN_TOKEN|> <|CHATBOT_TOKEN|> <|START_THINKING|> <BOS_TOKEN> <EOP_TOKEN> <co> </co>"
    " <|start_of_role|> <|tool_call|> |||IP_ADDRESS||| |||EMAIL_ADDRESS||| <fim_prefix> <fim-middle> <filename>"
    " <reponame> <gh_stars> <issue_start> <jupyter_code> <commit_before> <empty_output> <file_sep> <end_of_utterance>"
    " <fake_token_around_image> <global-img> <row_1_col_2> <image> <img> </img> <box> <ref> <quad> <loc0000> <seg012>"
    " <reserved_106> <reserved_107> [UNUSED_TOKEN_145] <|User|> <|Bot|> <eoh> <eoa> <|startoftext|> <|bom|> <|eom|>"
    " <seed:bos> <seed:think> </seed:think> <seed:tool_call> <seed:cot_budget_reflect> <mask:1> <sep> <cls> <mask>"
    " <extra_id_1> <SPECIAL_10> <|hy_User|> <｜hy_Assistant｜> <|extra_0|> <_user> <_bot> <_end> <用户> <AI> <|turn>"
    " <turn|> <|channel> <channel|> <|think|> [BEGIN_AUDIO] [TRANSCRIBE] [PREFIX] [SUFFIX] [MIDDLE] [TOOL_CALLS]"
    " [TOOL_RESULTS] [/TOOL_RESULTS] [IMG] [IMG_END] [CLS] [SEP] [unused0] [extra_id_3] [gMASK] <PRE> <SUF> <MID> <EOT>"
    " <role> </role> <|endofprompt|> <|separator|> <eod> <eom> <ImageHere> <image_soft_token> <audio_soft_token>"
    " <tools> </tools> <thinking> </thinking> <|begin_of_box|> <mm:think> /no_think <|vision_end|> <pad> <eos>"
)
SPELLED = _SPELLED.split()
"""Further ones, of Llama 2 to 4, Phi, gpt-oss, Kimi, Command, Granite, OLMo, StarCoder, SmolVLM, Qwen-VL, PaliGemma,
Baichuan, InternLM, Jamba, Seed, ERNIE, Nemotron, Hunyuan, TeleChat, MiniCPM, Gemma, Mistral, BERT and CodeLlama."""
WORDS = "the plant makes sugar from light [1] a < b and c > d <b>bold</b> /think about it user assistant system"


def byte_level(family: Family, normalizer: normalizers.Normalizer | None = None) -> PreTrainedTokenizerFast:
    """Byte-level pairs, as most families have them."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        [WORDS], trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False)
    )
    return _with_tokens(made, family, normalizer)


def pieces(family: Family, normalizer: normalizers.Normalizer | None = None) -> PreTrainedTokenizerFast:
    """Unigram pieces without bytes; the vocabulary itself holds the tokens, so that the model can find them too."""
    letters = sorted({*WORDS.replace(" ", ""), "▁", "<", ">", "[", "]", "|", *"".join(family.tokens)})
    scored = [("<unk>", 0.0), *((token, 0.0) for token in family.tokens if token != "<unk>")]
    made = Tokenizer(models.Unigram([*scored, *((letter, -5.0) for letter in letters)], unk_id=0))
    made.pre_tokenizer, made.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    return _with_tokens(made, family, normalizer)


def words(family: Family, normalizer: normalizers.Normalizer | None = None) -> PreTrainedTokenizerFast:
    """Word pieces in small letters, with the tokens in the vocabulary."""
    letters = sorted({*WORDS.replace(" ", ""), *"".join(family.tokens).lower()})
    texts = [
        "[UNK]",
        *(token for token in family.tokens if token != "[UNK]"),
        *letters,
        *("##" + one for one in letters),
    ]
    vocabulary = {text: at for at, text in enumerate(dict.fromkeys(texts))}
    made = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return _with_tokens(made, family, normalizer or normalizers.BertNormalizer())


NOTHING_UNSEEN = normalizers.Sequence(
    [normalizers.NFKC(), normalizers.Replace(Regex(r"[\p{Cf}\x00-\x08\x0e-\x1f\x7f]"), "")]
)
"""Takes out what is not seen: the usual sign among it."""
SMALL = normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()])


def _with_tokens(made: Tokenizer, family: Family, normalizer: normalizers.Normalizer | None) -> PreTrainedTokenizerFast:
    if normalizer is not None:
        made.normalizer = normalizer
    read = normalizer is not None  # what is matched after the normaliser
    made.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in family.tokens[:3]])
    special = [text for text in family.tokens[3:] if text not in family.added]
    made.add_special_tokens([AddedToken(text, special=True, normalized=read, lstrip=True) for text in special])
    made.add_tokens([AddedToken(text, special=False, normalized=read) for text in family.added])
    fast = PreTrainedTokenizerFast(tokenizer_object=made, **family.named)
    fast.chat_template = family.template
    return fast
