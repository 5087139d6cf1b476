"""The rules of dev/check.py within statements, outside kernels: no conditional expression inside another, and
no statements joined by the comma operator. Both take code whose comments and strings are blank."""
import re

PREFIX = re.compile(r"\s*(?:(?:else|do)\b|(?:case\b(?:[^:;]|::)*|default|public|private|protected)\s*:(?!:)"
                    r"|(?:if|if constexpr|for|while)\s*\(\))(?:\s*\[\[\]\])?")
ANGLES = re.compile(r"(?<=\w)<[^<>;]*>")
TARGET = r"(?:\+\+|--|\*)*\w(?:[\w.:()\[\]]|->)*(?:\+\+|--)?"       # a variable or a call
JOINED = re.compile(rf"\s*(?:return\b|{TARGET}\s*(?:(?:[-+*/%&|^]|<<|>>)?=|,))")
TYPE = re.compile(r"\s*(?:(?:const|static|constexpr|inline|typedef) )*(?:struct|union|class|enum)\b")
CONTROL = re.compile(r"\b(?:if|if constexpr|for|while|switch)\s*$")
OPENS, CLOSES = "([{", {")": "(", "]": "[", "}": "{"}


def statements(code):
    """(offset of its semicolon, text) of each statement. Brackets are empty in the text: f(a, b) is f()."""
    stack, text = [], ""                # open brackets: [bracket, text before it, whether it has statements]
    for at, c in enumerate(code):
        in_block = not stack or stack[-1][0] == "{"
        if c in OPENS:
            stack.append([c, text, False])
            text = ""
        elif stack and CLOSES.get(c) == stack[-1][0]:
            bracket, before, block = stack.pop()
            in_block = not stack or stack[-1][0] == "{"
            text = "" if block and in_block and not TYPE.match(before) else before + bracket + c
        elif c == ";" and in_block:
            if stack:
                stack[-1][2] = True
            yield at, text
            text = ""
        else:
            text += c


def joined_by_commas(code):
    """Lines of statements with a comma operator. A declaration has a blank between its type and its name."""
    for at, text in statements(code):
        while prefix := PREFIX.match(text):
            text = text[prefix.end():]
        while (rest := ANGLES.sub("", text)) != text:
            text = rest
        if "," in text and JOINED.match(text):
            yield code.count("\n", 0, at) + 1


def nested_conditionals(code):
    """Lines of conditional expressions that are inside another: as an operand, or in its condition."""
    stack = [["{", 0, 0]]               # open brackets: [bracket, conditionals open, and closed in ()]
    for at, c in enumerate(code):
        if c in OPENS:
            control = c == "(" and CONTROL.search(code[max(0, at - 20):at])
            stack.append(["if" if control else c, 0, 0])
        elif c in CLOSES and len(stack) > 1:
            bracket, opened, closed = stack.pop()
            stack[-1][2] = opened + closed + stack[-1][2] if bracket in "([" else 0
        elif c in ";,":
            stack[-1][1:] = 0, 0
        elif c == "=" and code[at - 1] not in "=!<>" and code[at + 1:at + 2] != "=":
            stack[-1][2] = 0
        elif c == "?":
            block = max(i for i, frame in enumerate(stack) if frame[0] == "{")
            if stack[-1][2] or any(opened for _, opened, _ in stack[block:]):
                yield code.count("\n", 0, at) + 1
            stack[-1][1] += 1
