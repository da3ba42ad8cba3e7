"""PyDocs, the built-in collection: passages out of the docstrings of the pinned packages.

Only source files are read, with `ast`; nothing is imported. So the same lock gives the same
passages under every Python and on every machine. A document is a module, its passages in the order
they stand there; the summary of a public function or class is a query, and the rest of its
docstring what answers it. Book: reference/data, PyDocs.
"""

import ast
import gc
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from hashlib import sha256
from importlib import metadata, util
from pathlib import Path

from tqdm.auto import tqdm

from dr_lib.collections.plain import cut
from dr_lib.collections.store import Judgement, Passage, Query, Source, published_source
from dr_lib.files import file_digest, json_digest
from dr_lib.words import sentences

LICENCES = dict.fromkeys(("numpy", "scipy", "pandas", "scikit-learn", "torch"), "BSD-3-Clause")
LICENCES |= {"matplotlib": "Matplotlib licence (PSF-based)", "transformers": "Apache-2.0"}
# Tests and vendored code; what a build writes (it differs between machines); numpy.distutils, gone
# under Python 3.12; transformers' modular_ files, which its modeling_ files repeat.
SKIPPED = re.compile(
    r"tests?|\w*testing|_?vendor\w*|_?externals?|array_api_(compat|extra)|distutils"
    r"|(_*version\w*|__config__|_distributor_init|modular_.*)\.py"
)
SHARES = {"train": 0.8, "dev": 0.9, "test": 1.0}  # upper ends, of the top modules
# in words: what is longer is a list, what is shorter worth no passage
LONGEST_SENTENCE, SHORTEST_TEXT = 130, 25
CUT = "\0"  # stands where something was taken out: a sentence that only announced it goes too
FUNCTION, BRANCH = (ast.FunctionDef, ast.AsyncFunctionDef), (ast.If, ast.Try, ast.With)

HEADING = re.compile(r"[A-Z][\w -]{1,30}:{1,2}")  # Google's
DROPPED = re.compile(
    r"(worked )?examples?.*|usage.*|references?|see"
    r" also|methods|todo|notation|shapes?|copyright|licen[cs]e|authors?"
)
UNDERLINE = re.compile(r"\s*([=\-~^\"'`#*+.])\1{2,}\s*")
TABLE = re.compile(r"\s*(?:=+\s+[=\s]+|\+[-=+]+\+|\|.*\||-{2,}\s+-[-\s]+)\s*")
NOTE = re.compile(
    r"(\s*)\.\. +(?:note|warning|tip|important|caution|attention|hint|admonition)::\s*(.*)"
)
DIRECTIVE = re.compile(r"\.\.(\s|$)")
BULLET = re.compile(r"\s*(?:[-*+•]|\(?[0-9]{1,2}[.)]|\(?[a-z]\)|#\.)\s+(?=\S)")
NAME = r"\*{0,2}`{0,2}[\w.*\\]+(?:\(\))?`{0,2}"
# An entry of a list of parameters, its text below it or behind it.
NUMPY = re.compile(
    rf"(?!{BULLET.pattern})(?:({NAME}(?:\s*,\s*{NAME})*)\s*(?::(?:\s.*)?)?|.*[^.,;:])()"
)
GOOGLE = re.compile(
    rf"(?::\w+ (?:[^:]* )?|:(?=\w+:)|[-*] )?({NAME})(?:\s*\(.*?\)\s?)?(?::|\s{{3,}})(?!\S)\s*(.*)"
)
CODE = re.compile(
    r"\s*(?:(?:class|def|async def)\s+\w+\s*[(:]|import [\w.]+(?: as \w+)?$|from [\w.]+"
    r" import\b|@\w+|#\s|[)\]}]+,?$"
    r"|(?:return|raise|assert|del|yield|await)\s+[\w.]+(?:$|[\[(])|(?:for|if|elif|while|with|try|except|else)\b.*:\s*$"
    r"|[\w.\[\]'\"]+(?:,"
    r" ?[\w.\[\]'\"]+)*\s\+?=\s\S|[\w.]+\(.*\)(?:\s*->.*)?,?$|(?:python|pip|git)\s+\S+)"
)
MARKUP = re.compile(  # roles; links and names in backticks; Markdown links, emphasis, substitutions
    r":[a-zA-Z][\w.+:-]*:`~(?:[^`<]*\.)?([^`.<]*)`|:[a-zA-Z][\w.+:-]*:`[~!]?\.?([^`<]*?)(?:\s*<[^`>]*>)?`"
    r"|\[`{1,2}[~!]?([^`\]]+)`{1,2}\]|``(.+?)``|`[~!]?(?:\.(?=[A-Z]|[a-z_]\w*\.\w))?([^`<]+?)(?:\s*<[^`<>]*>)?`_{0,2}"
    r"|!?\[([^\[\]]+)\]\((?:[^()\s]|\([^()]*\))*\)|(?<![\w*\\])(?:\*\*|\*)(?=[^\s*])([^*]*[^\s*])\*{1,2}(?![\w*])"
    r"|\|([A-Za-z][^|]*)\|_{0,2}"
)
REMOVED = re.compile(  # citations, addresses, tags, the rest of broken markup
    r"\s*\[[#\w*]+\]_|(?<=\w)"
    r" \[\d\d?\](?=[\s.,;)]|$)|<?https?://[^\s>)\]]+>?|</?(?:Tip|[bip]|br|li)\b[^<>]*>|`|\\(?=[*_])"
)
SIGNS = re.compile(r"[`*|\[<\\]|://")  # one of them is in all that the two above match
UNREADABLE = re.compile(
    r"(?i)\\[a-zA-Z]{2,}|\$\$|%\(\w+\)s|\\[{}]|_\{|\^\{|>>>|\.\."
    r" ?[a-z]|={3,}|-{4,}|<[/\w]+>|\|.*\||\{\{|\}\}"
    r"|:(?::|math|class|func|meth|ref|obj|attr|mod):|\b(?:e\.g|i\.e)\W*$|^(?:see|read more|refer"
    r" to)(?: \S+){1,7}$"
    r"|^(?:see"
    r" also|copyright|todo|fixme|xxx|doctest|usage:|examples?:|author|@|\.{3})"
    r"|^(?-i:where|and|with|or) "
    r"|^\W*\[\d|\b(?:in|on|by|of|from|see|the|to|and|with|as|for)\W*$|\{[a-z_]+\}"
)
SUMMARY = re.compile(r"(?!.*[.:] )(\S+ ){4,29}\S+\.")  # one sentence of 5 to 30 words


def source() -> Source:
    """Describe PyDocs; docstrings are read only when it is not in the cache yet."""
    # torch's 2.13.0+cpu is 2.13.0
    versions = {name: metadata.version(name).partition("+")[0] for name in LICENCES}
    info = {"source": "docstrings of installed packages", "versions": versions, "licence": LICENCES}
    code = [file_digest(Path(__file__).with_name(name)) for name in ("pydocs.py", "plain.py")]
    return published_source(
        "pydocs", json_digest([versions, code]), "PyDocs", lambda: build(read_docstrings()), info
    )


def read_docstrings() -> Iterator[tuple[str, str, str]]:
    """(module, qualified name in it, text) of all docstrings: packages as listed, files by path,
    then as they stand.
    """
    for package in tqdm(LICENCES, "PyDocs", unit="package", leave=False):
        root = Path(util.find_spec(package.replace("scikit-learn", "sklearn")).origin).parent
        # Sorted by the parts of the path: not all systems order whole paths alike.
        for parts in sorted(path.relative_to(root).parts for path in root.rglob("*.py")):
            if not any(map(SKIPPED.fullmatch, parts)):
                module = ".".join((root.name, *parts)).removesuffix(".py").removesuffix(".__init__")
                with warnings.catch_warnings(action="ignore"):  # of escapes in their strings
                    # a tree holds no cycles: to look for them while it is there took half of the
                    # time
                    gc.disable()
                    try:
                        found = list(docstrings(ast.parse(root.joinpath(*parts).read_bytes())))
                    finally:
                        gc.enable()
                yield from ((module, name, text) for name, text in found)


def docstrings(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Qualified names and docstrings, as written, of what a module defines; bodies of functions are
    not entered.

    Example:
        >>> list(docstrings(ast.parse("class Box:\\n    def open(self):\\n        'Open it.'")))
        [('Box.open', 'Open it.')]
    """
    if not isinstance(node, BRANCH) and (text := ast.get_docstring(node, clean=False)):
        yield prefix, text
    for child in [] if isinstance(node, FUNCTION) else ast.iter_child_nodes(node):
        if isinstance(child, (ast.ClassDef, *FUNCTION, *BRANCH)):
            yield from docstrings(child, f"{prefix}.{getattr(child, 'name', '')}".strip("."))
        elif isinstance(child, ast.Expr | ast.Assign) and isinstance(child.value, ast.Call):
            yield from _added(child.value, getattr(child, "targets", []))


def _added(call: ast.Call, targets: list[ast.expr]) -> Iterator[tuple[str, str]]:
    """Docstring of a compiled function: `add_newdoc(module, name, doc)`, `name =
    _add_docstr(torch.name, doc)`.
    """
    if call.args and re.search(r"\badd_(newdoc|docstr)|_add_docstr$", ast.unparse(call.func)):
        # numpy's (method, doc)
        *place, doc = [*call.args[:-1], *getattr(call.args[-1], "elts", call.args[-1:])]
        names = [re.sub(r"^torch\.|\b_\w+\.", "", ast.unparse(part)) for part in targets or place]
        names = [name.strip("'") for name in names if re.fullmatch(r"[\w.]+|'\w+'", name)]
        yield ".".join(names), _string(doc)


def _string(node: ast.AST) -> str:
    """Text of a constant, a sum, a template without placeholders; not of f-strings, which Python
    3.12 reads anew.
    """
    if isinstance(node, ast.BinOp):
        return _string(node.left) + _string(node.right)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return (
            re.sub(r"\{\w*\}", "", _string(node.func.value)).replace("{{", "{").replace("}}", "}")
        )
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def units(docstring: str) -> list[str]:
    """What is not cut any further, in reading order: sentences of prose, and entries of lists of
    parameters.

    Example:
        >>> units(
        ...     "Add up all ``rows``.\\n\\nParameters\\n----------\\n"
        ...     "axis : int\\n    The axis to count along."
        ... )
        ['Add up all rows.', 'axis: The axis to count along.']
    """
    # (whether an entry, lines); how far the name of the entry stands in
    blocks, top = [(False, [])], None
    lines = ["", *_prose(docstring), ""]
    for above, line, below in zip(lines, lines[1:], lines[2:], strict=False):
        bare, depth = line.strip("\0 "), _indent(line)
        begins = bare and (depth <= top if top is not None else not above.strip() or bare[0] == ":")
        entry = begins and (
            GOOGLE.fullmatch(bare) or (_indent(below) > depth and NUMPY.fullmatch(bare))
        )
        if entry or (begins and top is not None and not above.strip()):
            blocks.append((bool(entry), []))
            top = depth if entry else None
        blocks[-1][1].append(line if not entry else f"{entry[1]}: {entry[2]}" if entry[1] else "")
    found = []
    for is_entry, body in blocks:
        texts = prose_sentences(body)
        found += [" ".join(texts)] if is_entry and texts else texts
    return found


def _prose(docstring: str) -> Iterator[str]:
    """Lines of prose, indented as they were, headings blank; `CUT` in place of code, tables and
    directives.
    """
    first, *lines = docstring.expandtabs().splitlines() or [""]
    margin = min((_indent(line) for line in lines if line.strip()), default=0)
    # inspect.cleandoc differs between Pythons
    lines = [first.strip(), *(line[margin:].rstrip() for line in lines)]
    # what is left out ends at a line that starts so (or is blank); at this indentation
    fence, hidden = None, None
    rules = [bool(UNDERLINE.fullmatch(line)) for line in [*lines, ""]]
    for line, below, ruled, ruled_below in zip(
        lines, [*lines[1:], ""], rules, rules[1:], strict=False
    ):
        bare, depth = line.strip(), _indent(line)
        underlined = 0 < len(bare) < 70 and not ruled and ruled_below
        if fence is not None:
            fence = None if (bare.startswith(fence) if fence else not bare) else fence
        elif (
            hidden is not None and not (underlined and hidden < 0) and (not bare or depth > hidden)
        ):
            continue
        elif underlined or (
            depth <= 4 and HEADING.fullmatch(bare) and (_indent(below) > depth or " " not in bare)
        ):
            hidden = (
                (-1 if underlined else depth)
                if DROPPED.fullmatch(bare.lower().rstrip(":"))
                else None
            )
            yield ""
        elif bare.startswith(("```", ">>>", "$ ", "In [", "#!", "% ")) or (
            TABLE.fullmatch(line) and not ruled
        ):
            fence, hidden = "```" if bare.startswith("```") else "", None
            yield CUT
        elif (DIRECTIVE.match(bare) or bare.endswith("::")) and not NOTE.fullmatch(line):
            yield from ("" if bare.startswith("..") or bare == "::" else line[:-1], CUT)
            hidden = depth
        elif not ruled:
            hidden = None
            yield NOTE.sub(r"\1\2", line) if ".." in line else line


def prose_sentences(lines: list[str]) -> list[str]:
    """Readable sentences of some lines; one that announces something taken out goes with it."""
    blocks: list[list[str]] = [[]]
    for line in lines:
        if line == CUT or not line.strip():
            blocks += [[line], []]
        elif bullet := BULLET.match(line):
            blocks.append([line[bullet.end() :]])
        else:
            blocks[-1].append(line.strip())
    found: list[str] = []
    for block in [*(block for block in blocks if any(block)), [CUT]]:
        if block == [CUT] or sum(bool(CODE.match(line)) for line in block) * 2 >= len(block):
            found = found[:-1] if found and found[-1].endswith(":") else found
            continue
        for text in sentences(plain(" ".join(block))):
            letters = sum(map(str.isalpha, text)) + text.count(" ")
            if (
                2 <= text.count(" ") < LONGEST_SENTENCE
                and letters >= 0.78 * len(text)
                and not UNREADABLE.search(text)
            ):
                found.append(text if text[-1] in ".!?:" else text.rstrip(",;") + ".")
    return found


def plain(text: str) -> str:
    """Text without markup: roles, links, emphasis, citations and addresses are reduced to their
    words.

    Example:
        >>> plain("See :class:`~numpy.ndarray` and ``x.sum()`` or *both* [1]_.")
        'See ndarray and x.sum() or both.'
    """
    if SIGNS.search(text):
        text = REMOVED.sub("", MARKUP.sub(lambda match: match[match.lastindex], text))
    return re.sub(r" (?=[,.;:)](?: |$))| \( \)|<>", "", " ".join(text.split()))


def build(found: Iterable[tuple[str, str, str]]) -> dict[str, list]:
    """Passages, queries and judgements by split; what is said again (by inherited methods,
    templates) is left out.
    """
    entries: dict[str, tuple[str, str, list[str]]] = {}  # by title: module, name, units
    texts, shown, known, places = set(), set(), set(), Counter()
    for module, name, docstring in found:
        text = " ".join(docstring.split())
        titles = (f"{place}.{name}".strip(".") for place in (re.sub(r"\._\w+", "", module), module))
        title = next((title for title in titles if title not in entries), None)
        if title and text not in texts and _words(body := units(docstring)) >= SHORTEST_TEXT:
            entries[title] = module, name, body
        texts.add(text)
    pattern = cache(_pattern)
    counts = Counter(key for _, _, body in entries.values() for key in set(map(pattern, body)))
    for _, _, body in entries.values():  # what three docstrings share is kept in the first
        fresh = [unit for unit in body if counts[pattern(unit)] < 3 or pattern(unit) not in shown]
        shown.update(map(pattern, body))
        body[:] = fresh if _words(fresh) >= SHORTEST_TEXT else []
    summaries = Counter(pattern(body[0]) for _, _, body in entries.values() if body)
    built: dict[str, list] = {part: [] for part in ("passages", "queries", *SHARES)}
    for title, (module, name, body) in entries.items():
        labelled = (
            re.fullmatch(r"(?!_)\w+(\.(?!_)\w+)*", name) and _words(body[1:]) >= SHORTEST_TEXT
        )
        labelled = labelled and SUMMARY.fullmatch(body[0]) and summaries[pattern(body[0])] == 1
        parts = cut(body[1:] if labelled else body)
        fresh = [text for text in parts if not _is_copy(text, known)]
        rows = [
            Passage(f"{title}#{n}", title, text, module, places[module] + n)
            for n, text in enumerate(fresh)
        ]
        places[module] += len(rows)
        built["passages"] += rows
        if labelled and len(fresh) * 2 > len(parts):
            built["queries"].append(Query(f"{title}?", body[0][:-1]))
            built[split_of(module)] += [Judgement(f"{title}?", row.id, 1) for row in rows]
    return built


def split_of(module: str) -> str:
    """Split of a module, one for all below the same top module, by hash: about 80 % train, 10 %
    dev, 10 % test.
    """
    top = ".".join(module.split(".")[: 3 if module.startswith("transformers.") else 2])
    return next(
        split
        for split, end in SHARES.items()
        if int(sha256(top.encode()).hexdigest()[:8], 16) < end * 2**32
    )


def _is_copy(text: str, known: set[int]) -> bool:
    """Whether half of a text's runs of six words stood in earlier texts; those of a new text are
    added to `known`.
    """
    words = re.findall(r"[a-z]+", text.lower())
    # Of 64 bits: in one run of ten million two of all the runs share theirs.
    runs = set(map(hash, zip(*(words[at:] for at in range(6)), strict=False))) or {
        hash(tuple(words))
    }
    copied = len(runs & known) >= len(runs) / 2
    known |= set() if copied else runs
    return copied


def _pattern(text: str) -> str:
    """A text with names and numbers made equal, so that copies for another class are recognised."""
    return re.sub(r"\b\w*[A-Z_0-9]\w*\b", "#", text)


def _words(texts: list[str]) -> int:
    return sum(len(text.split()) for text in texts)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
