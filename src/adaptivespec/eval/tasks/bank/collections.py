"""Exercises on lists, dictionaries and sets."""

from __future__ import annotations

from adaptivespec.eval.tasks.bank import Bank

BANK = Bank()


@BANK.on([1, 2, 3], [5], [-4, 4], [])
def add_all(numbers: list[int]) -> int:
    """Return the sum of all numbers in the list."""
    return sum(numbers)


@BANK.on([1, 2, 3], [5], [2, -4, 3], [7, 0])
def multiply_all(numbers: list[int]) -> int:
    """Return the product of all numbers in the list."""
    product = 1
    for number in numbers:
        product *= number
    return product


@BANK.on([3, 9, 2], [5], [-4, -7], [1, 1])
def find_maximum(numbers: list[int]) -> int:
    """Return the largest number in the non-empty list."""
    return max(numbers)


@BANK.on([3, 9, 2], [5], [-4, -7], [1, 1])
def find_minimum(numbers: list[int]) -> int:
    """Return the smallest number in the non-empty list."""
    return min(numbers)


@BANK.on([1, 2, 3], [5], [2, 4, 9, 1], [0, 0])
def list_mean(numbers: list[float]) -> float:
    """Return the arithmetic mean of the numbers in the non-empty list."""
    return sum(numbers) / len(numbers)


@BANK.on([3, 1, 2], [7], [5, 2, 8, 1, 9], [4, 4, 1])
def median_of_odd(numbers: list[int]) -> int:
    """Return the median of a list with an odd number of integers."""
    return sorted(numbers)[len(numbers) // 2]


@BANK.on([1, 2, 3, 4], [5, 7], [], [0, -2, 9])
def pick_even(numbers: list[int]) -> list[int]:
    """Return a list of the even numbers in the given list."""
    return [n for n in numbers if n % 2 == 0]


@BANK.on([1, -2, 3], [-5, -7], [], [0, 4])
def pick_positive(numbers: list[int]) -> list[int]:
    """Return a list of the numbers that are greater than zero."""
    return [n for n in numbers if n > 0]


@BANK.on([1, 2, 3], [], [-4], [10, 0])
def square_each(numbers: list[int]) -> list[int]:
    """Return a list with the square of each number."""
    return [n * n for n in numbers]


@BANK.on([1, 2, 3], [], [-4], [10, 0])
def double_each(numbers: list[int]) -> list[int]:
    """Return a list in which each number is doubled."""
    return [2 * n for n in numbers]


@BANK.on([1, 2, 2, 3, 1], [5], [], [4, 4, 4])
def without_duplicates(items: list[int]) -> list[int]:
    """Return the items in order without duplicates; the first occurrence of each stays."""
    return list(dict.fromkeys(items))


@BANK.on([1, 2, 3], [5], [], [4, 8])
def list_backwards(items: list[int]) -> list[int]:
    """Return a new list with the items in reverse order."""
    return items[::-1]


@BANK.on([3, 1, 2], [], [5, 5, 1], [-1, -2])
def sort_descending(numbers: list[int]) -> list[int]:
    """Return the numbers sorted from the largest to the smallest."""
    return sorted(numbers, reverse=True)


@BANK.on([1, 2, 3], [3, 1], [], [1, 1, 2])
def sorted_already(numbers: list[int]) -> bool:
    """Return True if the numbers are in ascending order."""
    return numbers == sorted(numbers)


@BANK.on(([1, 2, 3], 2), ([1], 5), ([], 1), ([4, 4], 4))
def list_contains(items: list[int], x: int) -> bool:
    """Return True if x is one of the items."""
    return x in items


@BANK.on(([1, 2, 2], 2), ([1], 5), ([], 1), ([4, 4, 4], 4))
def how_often(items: list[int], x: int) -> int:
    """Return how many times x occurs in items."""
    return items.count(x)


@BANK.on(([1, 2, 3], 2), ([5], 5), ([7, 8], 1), ([4, 4], 4))
def index_or_minus_one(items: list[int], x: int) -> int:
    """Return the index of the first x in items, or -1 if x does not occur."""
    return items.index(x) if x in items else -1


@BANK.on(([1, 2], [3]), ([], []), ([5], [5, 6]), ([], [1]))
def concatenate(a: list[int], b: list[int]) -> list[int]:
    """Return a list of the items of a followed by the items of b."""
    return a + b


@BANK.on(([1, 2, 3], [2, 3, 4]), ([], [1]), ([5, 6], [6, 5]), ([1], [2]))
def in_both(a: list[int], b: list[int]) -> list[int]:
    """Return the items of a that are also in b, in the order of a."""
    return [x for x in a if x in b]


@BANK.on([1, 2, 3], [5], [9, 8, 7, 6])
def final_item(items: list[int]) -> int:
    """Return the last item of the non-empty list."""
    return items[-1]


@BANK.on([1, 2, 3, 4], [5, 6], [9, 8, 7])
def without_ends(items: list[int]) -> list[int]:
    """Return the list without its first and its last item."""
    return items[1:-1]


@BANK.on([4, 1, 7, 7], [5, 9], [3, 2, 1], [1, 2, 3, 4])
def second_largest(numbers: list[int]) -> int:
    """Return the second largest of the distinct numbers in the list."""
    return sorted(set(numbers))[-2]


@BANK.on([[1, 2], [3]], [[]], [[5], [6], [7, 8]])
def join_lists(lists: list[list[int]]) -> list[int]:
    """Return one list with the items of all the inner lists, in order."""
    return [x for inner in lists for x in inner]


@BANK.on((["a", "b"],), ([],), (["apple", "fig", "kiwi"],))
def word_lengths(words: list[str]) -> list[int]:
    """Return a list with the length of each word."""
    return [len(word) for word in words]


@BANK.on((["apple", "fig", "banana"], 4), ([], 2), (["a", "bb"], 1), (["xyz"], 3))
def longer_words(words: list[str], n: int) -> list[str]:
    """Return the words that have more than n letters."""
    return [word for word in words if len(word) > n]


@BANK.on((["Bob", "anna"],), ([],), (["x", "Y", "z"],))
def words_in_capitals(words: list[str]) -> list[str]:
    """Return a list of the words in upper case."""
    return [word.upper() for word in words]


@BANK.on((["pear", "fig", "kiwi"],), (["b", "a"],), ([],))
def dictionary_order(words: list[str]) -> list[str]:
    """Return the words in alphabetical order."""
    return sorted(words)


@BANK.on((["a", "b"], [1, 2]), ([], []), (["x"], [9]))
def dict_from_lists(keys: list[str], values: list[int]) -> dict[str, int]:
    """Return a dictionary that maps each key to the value at the same position."""
    return dict(zip(keys, values, strict=True))


@BANK.on(({"a": 1, "b": 2},), ({},), ({"x": 5},))
def value_list(d: dict[str, int]) -> list[int]:
    """Return a list of the values of the dictionary."""
    return list(d.values())


@BANK.on(({"b": 1, "a": 2},), ({},), ({"x": 5},))
def ordered_keys(d: dict[str, int]) -> list[str]:
    """Return a sorted list of the keys of the dictionary."""
    return sorted(d)


@BANK.on(({"a": 1}, "a"), ({"a": 1}, "b"), ({}, "x"))
def lookup_or_zero(d: dict[str, int], key: str) -> int:
    """Return the value of the key in the dictionary, or 0 if the key is missing."""
    return d.get(key, 0)


@BANK.on(([1, 2], [3, 4]), ([], []), ([5], [6]), ([1, 1, 1], [2, 3, 4]))
def add_pairwise(a: list[int], b: list[int]) -> list[int]:
    """Return the sums of the items at the same positions of two lists of equal length."""
    return [x + y for x, y in zip(a, b, strict=True)]


@BANK.on([1, 2, 3], [5], [], [2, 2, 2])
def all_equal_items(items: list[int]) -> bool:
    """Return True if all items of the list are equal; an empty list counts as equal."""
    return len(set(items)) < 2


@BANK.on([1, 2, 3], [], [-5, 5, 0], [7, 9])
def count_odd_members(numbers: list[int]) -> int:
    """Return how many of the numbers are odd."""
    return sum(n % 2 for n in numbers)


@BANK.on(([1, 2, 3, 4], 2), ([5], 3), ([], 1), ([7, 8, 9], 1))
def take_first(items: list[int], n: int) -> list[int]:
    """Return a list of the first n items, or all of them if there are fewer."""
    return items[:n]


@BANK.on([1, 2, 3, 4], [5, -5], [], [10])
def running_sum(numbers: list[int]) -> list[int]:
    """Return a list whose i-th entry is the sum of the first i + 1 numbers."""
    return [sum(numbers[: i + 1]) for i in range(len(numbers))]
