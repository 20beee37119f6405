"""Exercises on numbers."""

from __future__ import annotations

from adaptivespec.eval.tasks.bank import Bank

BANK = Bank()


@BANK.on((1, 2, 3), (0, 0, 0), (-4, 10, 7), (100, -50, 25))
def add_three(a: int, b: int, c: int) -> int:
    """Return the sum of a, b and c."""
    return a + b + c


@BANK.on(4, 7, 0, -2, -9)
def is_even_number(n: int) -> bool:
    """Return True if n is even, otherwise False."""
    return n % 2 == 0


@BANK.on((3, 8), (8, 3), (-5, -2), (6, 6))
def bigger_of_two(a: int, b: int) -> int:
    """Return the larger of a and b."""
    return max(a, b)


@BANK.on((5, 2, 9), (1, 1, 1), (-3, -8, 0), (7, 12, 4))
def smallest_of_three(a: int, b: int, c: int) -> int:
    """Return the smallest of the three numbers a, b and c."""
    return min(a, b, c)


@BANK.on(5, 1, 0, 7, 3)
def factorial_of(n: int) -> int:
    """Return n factorial. The factorial of 0 is 1."""
    return 1 if n < 2 else n * factorial_of(n - 1)


@BANK.on(7, 1, 2, 9, 97, 91)
def check_prime(n: int) -> bool:
    """Return True if n is a prime number, otherwise False."""
    return n > 1 and all(n % d for d in range(2, int(n**0.5) + 1))


@BANK.on((3, 4), (10, 2), (1, 1), (7, 9))
def rectangle_area(width: int, height: int) -> int:
    """Return the area of a rectangle with the given width and height."""
    return width * height


@BANK.on((3, 4), (10, 2), (1, 1), (7, 9))
def rectangle_perimeter(width: int, height: int) -> int:
    """Return the perimeter of a rectangle with the given width and height."""
    return 2 * (width + height)


@BANK.on(1, 2, 5, 10)
def cube_volume(side: int) -> int:
    """Return the volume of a cube with the given side length."""
    return side**3


@BANK.on(32, 212, 50, -40)
def fahrenheit_to_celsius(f: float) -> float:
    """Convert a temperature from degrees Fahrenheit to degrees Celsius."""
    return (f - 32) * 5 / 9


@BANK.on(5, -5, 0, -123)
def absolute_value_of(x: int) -> int:
    """Return the absolute value of x without using abs."""
    return x if x >= 0 else -x


@BANK.on(2, -3, 0, 10)
def sign_of(x: int) -> int:
    """Return 1 if x is positive, -1 if x is negative and 0 if x is zero."""
    return (x > 0) - (x < 0)


@BANK.on(5, 1, 10, 0)
def sum_up_to(n: int) -> int:
    """Return the sum of all integers from 1 to n."""
    return sum(range(1, n + 1))


@BANK.on((2, 3), (5, 0), (3, 4), (10, 2))
def raise_to_power(base: int, exponent: int) -> int:
    """Return base raised to the power of exponent."""
    return base**exponent


@BANK.on((12, 18), (7, 5), (100, 75), (9, 9))
def greatest_divisor(a: int, b: int) -> int:
    """Return the greatest common divisor of the positive integers a and b."""
    while b:
        a, b = b, a % b
    return a


@BANK.on((4, 6), (3, 5), (7, 7), (2, 8))
def lowest_multiple(a: int, b: int) -> int:
    """Return the least common multiple of the positive integers a and b."""
    return next(m for m in range(a, a * b + 1, a) if m % b == 0)


@BANK.on(2000, 1900, 2024, 2023, 1600)
def leap_year(year: int) -> bool:
    """Return True if year is a leap year in the Gregorian calendar."""
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


@BANK.on(0, 1, 2, 7, 10)
def nth_fibonacci(n: int) -> int:
    """Return the n-th Fibonacci number, where number 0 is 0 and number 1 is 1."""
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a


@BANK.on(123, 9, 1000, 98765)
def add_digits(n: int) -> int:
    """Return the sum of the decimal digits of the positive integer n."""
    return sum(int(d) for d in str(n))


@BANK.on(123, 7, 1002, 450)
def flip_number(n: int) -> int:
    """Return the integer whose decimal digits are those of n in reverse order."""
    return int(str(n)[::-1])


@BANK.on(5, 0, 8, 255)
def binary_text(n: int) -> str:
    """Return the binary form of the non-negative integer n as a string, without a prefix."""
    return format(n, "b")


@BANK.on("101", "0", "1111", "100000")
def binary_value(bits: str) -> int:
    """Return the integer that a string of binary digits stands for."""
    return int(bits, 2)


@BANK.on((10, 5), (7, 2), (9, 3), (5, 0))
def safe_divide(a: float, b: float) -> float | None:
    """Return a divided by b, or None if b is zero."""
    return None if b == 0 else a / b


@BANK.on((15, 3), (16, 5), (0, 4), (9, 9))
def is_multiple_of(n: int, k: int) -> bool:
    """Return True if n is a multiple of k."""
    return n % k == 0


@BANK.on(3, 5, 15, 7, 30)
def fizz_or_buzz(n: int) -> str:
    """Return "Fizz" if n is divisible by 3, "Buzz" if by 5, "FizzBuzz" if by both, else str(n)."""
    return ("Fizz" if n % 3 == 0 else "") + ("Buzz" if n % 5 == 0 else "") or str(n)


@BANK.on(95, 85, 72, 40, 90)
def letter_grade(score: int) -> str:
    """Return "A" for a score of at least 90, "B" for at least 80, "C" for at least 70, else "F"."""
    return "A" if score >= 90 else "B" if score >= 80 else "C" if score >= 70 else "F"


@BANK.on(1, 3, 24, 0)
def hours_to_seconds(hours: int) -> int:
    """Return the number of seconds in the given number of hours."""
    return hours * 3600


@BANK.on((3, 4), (6, 8), (0, 5), (5, 12))
def hypotenuse(a: float, b: float) -> float:
    """Return the length of the hypotenuse of a right triangle with legs a and b."""
    return (a * a + b * b) ** 0.5


@BANK.on((3, 4, 5), (1, 1, 3), (2, 2, 2), (5, 1, 2))
def valid_triangle(a: int, b: int, c: int) -> bool:
    """Return True if a triangle with the sides a, b and c exists."""
    return a + b > c and a + c > b and b + c > a


@BANK.on((1, 10, 5), (1, 10, 11), (3, 3, 3), (0, 4, -1))
def lies_between(low: int, high: int, x: int) -> bool:
    """Return True if x is at least low and at most high."""
    return low <= x <= high


@BANK.on((2, 4), (5, 10), (-3, 3), (7, 7))
def mean_of_two(a: float, b: float) -> float:
    """Return the average of a and b."""
    return (a + b) / 2


@BANK.on(6, 28, 12, 1, 8)
def perfect_number(n: int) -> bool:
    """Return True if the positive integer n equals the sum of its proper divisors."""
    return n == sum(d for d in range(1, n) if n % d == 0)


@BANK.on((100, 10, 2), (1000, 5, 1), (200, 0, 4), (50, 20, 3))
def simple_interest(amount: float, percent: float, years: int) -> float:
    """Return the simple interest on amount at a yearly rate in percent after some years."""
    return amount * percent * years / 100


@BANK.on(5, 1, 3, 0)
def count_down(n: int) -> list[int]:
    """Return a list of the integers from n down to 1."""
    return list(range(n, 0, -1))


@BANK.on((3, 5), (7, 1), (2, 4), (10, 3))
def times_row(n: int, count: int) -> list[int]:
    """Return a list with the first count multiples of n, beginning with n itself."""
    return [n * i for i in range(1, count + 1)]
