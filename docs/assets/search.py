"""A hook of mkdocs: the words that people search for lead to their page.

`search_terms.txt` has a page, or a section of one, and the words under which it has to be found. They are added to the
index of the search, and a build fails if one of them does not find its page among the first three.
"""

import collections
import json
import logging
import math
import pathlib
import re
from collections.abc import Mapping
from typing import Any

from mkdocs.plugins import event_priority

LOG = logging.getLogger("mkdocs.plugins.search_terms")  # a warning ends a strict build
FIRST = 3
BOOSTS = {
    "guides/": 2.0,
    "faq/": 2.0,
    "tutorials/": 1.0,
    "api/": 0.5,
    "benchmarks/": 0.5,
    "design/": 0.2,
    "changelog/": 0.1,
}
WITHOUT_CODE = ("api/", "tutorials/")
"""Where code is examples and scripts: it makes the index large, and its words are found elsewhere."""
_CODE = re.compile(r"<pre>.*?</pre>", re.DOTALL)


def terms(path: pathlib.Path) -> dict[str, list[str]]:
    """The words to find, by the address of their page."""
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    parts = [line.partition(": ") for line in lines]
    return {place: [word.strip() for word in words.split(",")] for place, _, words in parts}


def completed(entries: list[dict[str, Any]], wanted: Mapping[str, list[str]]) -> list[str]:
    """Adds the words to the entries of an index, weighs the entries, and returns the places that are not in it."""
    by_place = {entry["location"]: entry for entry in entries}
    for place, words in wanted.items():
        if place in by_place:
            by_place[place]["tags"] = words
    for place, entry in by_place.items():
        if place.startswith(WITHOUT_CODE):
            entry["text"] = _CODE.sub("", entry["text"])
        entry["boost"] = next((boost for start, boost in BOOSTS.items() if place.startswith(start)), 1.0)
    return [place for place in wanted if place not in by_place]


class Search:
    """Ranks pages as the search in the browser does: lunr's, with every term as the start of a word."""

    def __init__(self, entries: list[dict[str, Any]], config: Mapping[str, Any]):
        fields = config["fields"]
        self._separator = re.compile(config["separator"])
        self._boosts = {name: field["boost"] for name, field in fields.items()}
        self._entries = entries
        self._counts = {name: [self._words(entry.get(name, "")) for entry in entries] for name in fields}
        self._of_word = {name: collections.defaultdict(list) for name in fields}
        for name, counts in self._counts.items():
            for number, count in enumerate(counts):
                for word in count:
                    self._of_word[name][word].append(number)
        self._vocabulary = sorted({word for words in self._of_word.values() for word in words})

    def _words(self, text: Any) -> collections.Counter:
        text = " ".join(text) if isinstance(text, list) else re.sub(r"<[^>]*>", " ", text)
        return collections.Counter(word for word in self._separator.split(text.lower()) if word)

    def pages(self, query: str) -> list[str]:
        """The pages that a query finds, the best first."""
        asked = list(self._words(query))
        scores: dict[int, float] = collections.defaultdict(float)
        met: dict[int, set] = collections.defaultdict(set)
        for term in asked:
            for word in self._vocabulary:
                if word.startswith(term):
                    self._add(word, term, scores, met)
        best: dict[str, float] = {}
        for number, score in scores.items():
            page, _, section = self._entries[number]["location"].partition("#")
            boost = (not section) + len(met[number]) / len(asked)
            best[page] = max(best.get(page, 0.0), score * (1 + boost**2))
        return sorted(best, key=lambda page: -best[page])

    def _add(self, word: str, term: str, scores: dict[int, float], met: dict[int, set]) -> None:
        """Lunr's BM25, without a correction for long texts."""
        documents = {number for found in self._of_word.values() for number in found.get(word, ())}
        rarity = math.log(1 + abs((len(self._entries) - len(documents) + 0.5) / (len(documents) + 0.5)))
        for name, boost in self._boosts.items():
            for number in self._of_word[name].get(word, ()):
                often = self._counts[name][number][word]
                scores[number] += rarity * 2.2 * often / (1.2 + often) * boost * self._entries[number]["boost"]
                met[number].add(term)


@event_priority(-100)  # after the index was written
def on_post_build(config: Any, **kwargs: Any) -> None:
    """Is called by mkdocs when all pages are written."""
    del kwargs
    path = pathlib.Path(config.site_dir) / "search" / "search_index.json"
    index = json.loads(path.read_text())
    wanted = terms(pathlib.Path(config.docs_dir) / "assets" / "search_terms.txt")
    for place in completed(index["docs"], wanted):
        LOG.warning("search_terms.txt: there is no %s", place)
    path.write_text(json.dumps(index, separators=(",", ":")))
    search = Search(index["docs"], index["config"])
    for place, words in wanted.items():
        for word in words:
            first = search.pages(word)[:FIRST]
            if place.partition("#")[0] not in first:
                LOG.warning("search: `%s` finds %s before %s", word, ", ".join(first) or "nothing", place)
