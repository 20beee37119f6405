"""Exercises on text."""

from __future__ import annotations

from adaptivespec.eval.tasks.bank import Bank

BANK = Bank()


@BANK.on("hello", "", "a", "Racecar")
def backwards_text(s: str) -> str:
    """Return the string s reversed."""
    return s[::-1]


@BANK.on("level", "hello", "a", "noon", "ab")
def reads_same_backwards(s: str) -> bool:
    """Return True if the string s is a palindrome."""
    return s == s[::-1]


@BANK.on("banana", "sky", "", "education", "AEIOU")
def vowel_total(s: str) -> int:
    """Return the number of vowels (a, e, i, o, u in either case) in the string s."""
    return sum(c in "aeiou" for c in s.lower())


@BANK.on("hello world", "one", "", "a b c d")
def word_total(s: str) -> int:
    """Return the number of words in s, which are separated by spaces."""
    return len(s.split())


@BANK.on(("banana", "a"), ("hello", "z"), ("", "x"), ("mississippi", "s"))
def char_frequency(s: str, c: str) -> int:
    """Return how many times the character c occurs in the string s."""
    return s.count(c)


@BANK.on("hello", "Python", "ABC", "")
def shout(s: str) -> str:
    """Return s in upper case with an exclamation mark at the end."""
    return s.upper() + "!"


@BANK.on("hello world", "the quick fox", "one", "a bc")
def title_words(s: str) -> str:
    """Return s with the first letter of every word in upper case."""
    return " ".join(word[:1].upper() + word[1:] for word in s.split(" "))


@BANK.on("education", "xyz", "hello", "aeiou")
def drop_vowels(s: str) -> str:
    """Return the lower-case string s without its vowels."""
    return "".join(c for c in s if c not in "aeiou")


@BANK.on("a b c", "hello", " x  y ", "")
def strip_all_spaces(s: str) -> str:
    """Return the string s with all spaces removed."""
    return s.replace(" ", "")


@BANK.on(("ab", 3), ("x", 0), ("hi", 1), ("-", 5))
def repeat_text(s: str, n: int) -> str:
    """Return the string s repeated n times."""
    return s * n


@BANK.on("hello", "a", "python", "xy")
def edge_letters(s: str) -> str:
    """Return a string of the first and the last character of s."""
    return s[0] + s[-1]


@BANK.on("hello", "abcd", "xyz", "a")
def middle_letter(s: str) -> str:
    """Return the character of s at the index len(s) // 2."""
    return s[len(s) // 2]


@BANK.on(("hello", "he"), ("hello", "lo"), ("abc", ""), ("a", "abc"))
def begins_with(s: str, prefix: str) -> bool:
    """Return True if s starts with prefix."""
    return s.startswith(prefix)


@BANK.on("12345", "12a", "", "007", "-5")
def all_digits(s: str) -> bool:
    """Return True if s is not empty and consists of the digits 0 to 9 only."""
    return bool(s) and all(c in "0123456789" for c in s)


@BANK.on("a1b2c3", "none", "2024", "x9")
def keep_digits(s: str) -> str:
    """Return a string of the digits in s, in order."""
    return "".join(c for c in s if c.isdigit())


@BANK.on("Hello World", "ABC", "abc", "PyThOn")
def count_capitals(s: str) -> int:
    """Return the number of upper-case letters in s."""
    return sum(c.isupper() for c in s)


@BANK.on("Hello", "ABC", "abc", "PyThOn 3")
def invert_case(s: str) -> str:
    """Return s with upper-case letters in lower case and lower-case letters in upper case."""
    return s.swapcase()


@BANK.on("the quick brown fox", "a bb ccc", "hello", "one three five")
def find_longest_word(s: str) -> str:
    """Return the longest word in s. If there are several, return the first of them."""
    return max(s.split(), key=len)


@BANK.on("hello", "aab", "", "mississippi")
def unique_letters(s: str) -> str:
    """Return the characters of s in order, each only at its first occurrence."""
    return "".join(dict.fromkeys(s))


@BANK.on("a,b,c", "x", "1,2", "red,green,blue")
def split_at_commas(s: str) -> list[str]:
    """Split the string s at its commas and return the parts as a list."""
    return s.split(",")


@BANK.on((["a", "b", "c"],), (["x"],), ([],), (["red", "blue"],))
def dash_joined(parts: list[str]) -> str:
    """Join the strings in parts with "-" between them."""
    return "-".join(parts)


@BANK.on("Anna", "Bob", "Zoë", "")
def greeting_for(name: str) -> str:
    """Return the string "Hello, NAME!" with the given name in place of NAME."""
    return f"Hello, {name}!"


@BANK.on("cat", "zebra", "hello", "a")
def sorted_letters_of(s: str) -> str:
    """Return the characters of s in sorted order as a string."""
    return "".join(sorted(s))


@BANK.on("hello world", "a-b", "x", "no spaces here")
def underscored(s: str) -> str:
    """Replace every space in s by an underscore."""
    return s.replace(" ", "_")


@BANK.on("banana", "abc", "aa", "zzyx")
def has_repeated_letter(s: str) -> bool:
    """Return True if a character occurs more than once in s."""
    return len(set(s)) < len(s)


@BANK.on("hello", "abcdef", "a", "xy")
def every_other_letter(s: str) -> str:
    """Return the characters of s at the indices 0, 2, 4 and so on."""
    return s[::2]


@BANK.on("one two three", "hello", "a b", "x y z w")
def last_word_of(s: str) -> str:
    """Return the last word of the sentence s."""
    return s.split()[-1]


@BANK.on("one two three", "hello", "a b", "x y z w")
def reverse_word_order(s: str) -> str:
    """Return the words of s in reverse order, separated by single spaces."""
    return " ".join(s.split()[::-1])


@BANK.on("abc", "xyz", "hello", "az")
def shift_letters(s: str) -> str:
    """Replace each lower-case letter of s by the next one in the alphabet; z becomes a."""
    return "".join(chr((ord(c) - 96) % 26 + 97) for c in s)


@BANK.on(("report.txt",), ("a.b.c",), ("photo.png",), ("archive.tar",))
def extension_of(filename: str) -> str:
    """Return the part of filename after its last dot."""
    return filename.rsplit(".", 1)[-1]


@BANK.on("ana@example.com", "x@y.org", "first.last@mail.net", "me@home.io")
def user_of_address(email: str) -> str:
    """Return the part of an email address before the @ sign."""
    return email.split("@")[0]


@BANK.on(("hello", "l", "L"), ("banana", "a", "o"), ("abc", "x", "y"), ("", "a", "b"))
def swap_character(s: str, old: str, new: str) -> str:
    """Return s with every occurrence of the character old replaced by new."""
    return s.replace(old, new)


@BANK.on(("a", "b"), ("same", "same"), ("Abc", "aBC"), ("x", ""))
def same_ignoring_case(a: str, b: str) -> bool:
    """Return True if a and b are equal when upper and lower case are ignored."""
    return a.lower() == b.lower()


@BANK.on("hello", "aabbb", "z", "abcabca")
def letter_counts(s: str) -> dict[str, int]:
    """Return a dictionary that maps each character of s to the number of its occurrences."""
    return {c: s.count(c) for c in s}
