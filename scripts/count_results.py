# SPDX-License-Identifier: Apache-2.0
"""Prints "PASSED FAILED" for a log of test results.

count_results.py meson build/meson-logs/testlog.json   a line of JSON per test program
count_results.py junit build/system-tests.xml          what pytest --junitxml writes

A test program with doctest inside counts by its test cases, any other as one test. Errors count as failed. A file
that is not there or not complete is one failure: whoever should have written it did not get that far.
"""

import json
import re
import sys
import xml.etree.ElementTree as xml

DOCTEST = re.compile(r"test cases:\s*\d+\s*\|\s*(\d+) passed\s*\|\s*(\d+) failed")


def count_meson(path):
    passed = failed = 0
    with open(path, encoding="utf-8") as log:
        for line in log:
            test = json.loads(line)
            good = test["result"] in ("OK", "EXPECTEDFAIL")
            cases = DOCTEST.findall(re.sub(r"\x1b\[[0-9;]*m", "", test.get("stdout", "")))
            if not cases:
                passed, failed = passed + good, failed + (not good)
                continue
            failures = sum(int(bad) for _, bad in cases)
            passed += sum(int(fine) for fine, _ in cases)
            # A program can fail with all its cases passed: at its exit, or by a sanitizer's report.
            failed += failures if good or failures else 1
    return passed, failed


def count_junit(path):
    passed = failed = 0
    for suite in xml.parse(path).getroot().iter("testsuite"):
        total, skipped = int(suite.get("tests")), int(suite.get("skipped"))
        bad = int(suite.get("failures")) + int(suite.get("errors"))
        passed, failed = passed + max(0, total - skipped - bad), failed + bad
    return passed, failed


def main():
    try:
        passed, failed = {"meson": count_meson, "junit": count_junit}[sys.argv[1]](sys.argv[2])
    except (OSError, ValueError, xml.ParseError) as error:
        print(f"no usable results in {sys.argv[2]}: {error}", file=sys.stderr)
        passed, failed = 0, 1
    print(passed, failed)


main()
