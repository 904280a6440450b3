"""One word for one thing: what screens and documents say has one word each, tierctl(1) and the glossary define it,
and words that were given up do not come back."""

import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import man_pages  # noqa: E402

# Word of today: what it replaces, as people would read it.
RETIRED = {
    "bypass": r"(around|past) the cache|around tierd|fell back|falls? back to the source|opened for real|real from the start|reads go past"
              r"|went (around|past)",
    "conversion": r"(made|make|makes|become|became|becomes|turned|turns) (a )?real\b",
    "bypass (`fallback` is the name in documents and metrics)": r"\bfallbacks?\b",
    "no room": r"\bno_frame\b|\bnot_cached\b",
    "source": r"first[ _]reads? (is|are|was|were|came) from",
}
# What is compared with other things than people's words.
NAMES = re.compile(r"`[^`]*`|tierd_fallback_total|tierd:fallback\w*(:\w+)*|TierdFallbacks|tier_fallback_name|TIER_FALLBACKS")


def literals(path):
    """The strings of a C++ or Python file that hold a sentence: names of fields have no blank."""
    for line in path.read_text().splitlines():
        if line.lstrip().startswith(("//", "#", "*", "/*")):
            continue
        for text in re.findall(r'"((?:[^"\\]|\\.)*)"', line):
            if " " in text.strip():
                yield text


def people_read():
    """(file, text) of all that people read, without names in code font and examples of documents."""
    for folder in ("tierctl", "tierd"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".cc", ".h"):
                yield path, "\n".join(literals(path))
    for path in sorted((ROOT / "tierctl/schema").glob("*.json")):
        yield path, "\n".join(re.findall(r'"description": "((?:[^"\\]|\\.)*)"', path.read_text()))
    documents = [*(ROOT / "docs").glob("*.md"), *(ROOT / "client_lib").rglob("*.md"), *(ROOT / "tierd").rglob("*.md"), ROOT / "README.md", ROOT / "SECURITY.md",
                 ROOT / "CONTRIBUTING.md"]
    for path in sorted(documents):
        yield path, re.sub(r"```.*?```", "", path.read_text(), flags=re.S)
    for name in ("tierctl.1", "tierd.8", "libtier_preload.7", "tierd-metrics.7"):
        path = ROOT / f"docs/man/man{name[-1]}" / name
        yield path, re.sub(r"\\f[BR]|\\&", "`", path.read_text().replace("\\-", "-"))
    for path in (ROOT / "config/grafana/tierd.json", ROOT / "config/prometheus/alert_rules.yml"):
        yield path, "\n".join(re.findall(r'(?:title|description|summary|runbook)"?: *"((?:[^"\\]|\\.)*)"', path.read_text()))


class Words(unittest.TestCase):
    maxDiff = None

    def test_words_that_were_given_up_do_not_come_back(self):
        seen, back = 0, []
        for path, text in people_read():
            seen += len(text)
            plain = NAMES.sub(" ", text)
            for word, old in RETIRED.items():
                if path.name == "tierd-metrics.7" and word == "no room":
                    continue  # it lists the values of labels
                for match in re.finditer(old, plain, re.I):
                    back.append(f"{path.relative_to(ROOT)}: {match[0]!r}: the word is: {word}")
        self.assertEqual(back, [])
        self.assertGreater(seen, 200_000, "the texts are looked at")

    def test_each_word_of_a_screen_is_one_sentence_in_the_manual_and_the_glossary(self):
        glossary = dict(re.findall(r"^\| (?!word)([^|]+?) \| ([^|]+?) \|$", (ROOT / "docs/glossary.md").read_text(), re.M))
        manual = (ROOT / "docs/man/man1/tierctl.1").read_text().replace("\\-", "-")
        section = re.search(r"^\.SH WORDS\n(.*?)^\.SH ", manual, re.M | re.S)[1]
        told = dict(re.findall(r"^\.TP\n\\fB([^\n]+)\\fR\n([^\n]+)$", section, re.M))
        self.assertEqual(sorted(told), sorted(man_pages.SCREEN_WORDS))
        for word, sentence in told.items():
            self.assertEqual(sentence[:1].lower() + sentence[1:-1], glossary[word][:1].lower() + glossary[word][1:])
            self.assertRegex(sentence, r"^[A-Z].*[a-z]\.$")
            self.assertNotIn(". ", sentence)


if __name__ == "__main__":
    unittest.main(verbosity=2)
