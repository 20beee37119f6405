"""Prompts that are tried in turn. What a model answers is found out, never assumed."""

from __future__ import annotations

__all__ = ["ENDING", "FORMS", "LONG", "MULTIBYTE", "RAW", "SHORT"]

SHORT = "Say hello to a friend in one sentence."

#: Answers of some length.
LONG = (
    "Write a long story about a river, a stone bridge and a dog that lost its way home.",
    "Explain in detail, step by step, how bread is made from grain.",
    "Describe every month of the year in two sentences each, beginning with January.",
    "Write the numbers from one to sixty as words, separated by commas.",
)

#: Answers that end by themselves soon.
ENDING = (
    "What is 2 + 2? Answer with the number.",
    "What is the capital of France? Answer in one word.",
    "Say yes.",
    "Is water wet? Answer yes or no.",
    "Name one colour.",
    "Reply with one word: hello",
)

#: Answers with characters of several bytes, split over tokens where the vocabulary lacks them.
MULTIBYTE = (
    "Repeat exactly: 你好 世界 🙂 Здравствуй, мир",
    "Translate 'good morning, world' into Japanese, Chinese, Russian and Greek.",
    "Write ten different emoji, and nothing else.",
    "Écris une phrase en français sur l'été à Genève, avec beaucoup d'accents.",
)

#: Texts to go on with, for completions.
RAW = (
    "The old river ran through the valley, and on its banks",
    "Once upon a time there was a dog who",
    "Bread is made from",
)

#: Conversations of several kinds, for mixed load.
FORMS = (
    "Tell me about the sea.",
    "List three animals and one fact about each.",
    "Write a short poem about winter.",
    "What should I pack for a walk in the mountains?",
)
