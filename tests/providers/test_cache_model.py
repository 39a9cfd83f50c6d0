"""The cache that offline usage comes from."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from providers_parts import block, request, requests, result, segment, tool, tools, user

from shoal.providers import Message, Request, Text
from shoal.providers.cache_model import CacheUse, Prefix, PrefixCache, prefixes_of

LONG = "x" * 6000


def used(cache: PrefixCache, asked: Request, at_s: float = 0.0, *, first_byte_s: float | None = None) -> CacheUse:
    prefixes, total = prefixes_of(asked)
    return cache.use(prefixes, total, start_s=at_s, first_byte_s=at_s if first_byte_s is None else first_byte_s)


def talk(*texts: str, **settings: Any) -> Request:
    return request(*[user(text) for text in texts], **settings)


def test_the_first_request_writes_and_the_second_reads():
    cache = PrefixCache()
    first, second = used(cache, talk(LONG)), used(cache, talk(LONG), 1.0)
    assert (first.read, first.write > 1024, first.uncached) == (0, True, 0)
    assert (second.read, second.write) == (first.write, 0)


def test_a_conversation_that_grew_reads_what_it_was():
    cache = PrefixCache()
    before = used(cache, talk(LONG))
    after = used(cache, talk(LONG, LONG), 1.0)
    assert (after.read, after.write > 1024) == (before.write, True)


def test_a_segment_that_closed_is_still_read():
    cache = PrefixCache()
    before = used(cache, Request("m", messages=(segment(user(LONG), user("b")),)))
    grown = (segment(user(LONG), user("b"), user("c"), closed=True), segment(user("d")))
    assert used(cache, Request("m", messages=grown), 1.0).read == before.write


def test_a_change_in_front_loses_everything_behind_it():
    cache = PrefixCache()
    used(cache, talk(LONG, system=(block("a"), block(LONG))))
    assert used(cache, talk(LONG, system=(block("b"), block(LONG))), 1.0).read == 0


def test_what_stands_in_front_of_a_change_is_read():
    cache = PrefixCache()
    used(cache, talk("a", system=(block(LONG), block("a"))))
    assert used(cache, talk("a", system=(block(LONG), block("b"))), 1.0).read == 1500


def test_other_tools_lose_everything():
    cache = PrefixCache()
    used(cache, talk(LONG, tools=tools(tool())))
    assert used(cache, talk(LONG, tools=tools(tool("find"))), 1.0).read == 0


def test_a_cache_is_the_models_own():
    cache = PrefixCache()
    used(cache, talk(LONG))
    assert used(cache, talk(LONG, model="other"), 1.0).read == 0


def test_a_short_prefix_is_not_kept():
    use = used(PrefixCache(), talk("short"))
    assert (use.read, use.write, use.uncached > 0) == (0, 0, True)


def test_an_entry_is_readable_from_the_first_byte_of_its_request():
    cache = PrefixCache()
    used(cache, talk(LONG), 0.0, first_byte_s=2.0)
    assert used(cache, talk(LONG), 1.0, first_byte_s=3.0).read == 0
    assert used(cache, talk(LONG), 3.0).read > 0


def test_an_entry_ends_after_its_lifetime():
    cache = PrefixCache(lifetime_s=300.0)
    used(cache, talk(LONG))
    assert used(cache, talk(LONG), 300.0).read == 0


def test_reading_an_entry_keeps_it_alive():
    cache = PrefixCache(lifetime_s=300.0)
    used(cache, talk(LONG))
    used(cache, talk(LONG), 299.0)
    assert used(cache, talk(LONG), 598.0).read > 0


def test_what_is_not_cacheable_ends_the_prefix():
    cache = PrefixCache()
    asked = talk(LONG, system=(block(LONG), block("date", cacheable=False), block(LONG)))
    used(cache, asked)
    assert used(cache, asked, 1.0) == CacheUse(1500, 0, prefixes_of(asked)[1] - 1500)


def test_the_tail_is_never_cached():
    tailed = talk(LONG, tail=Text.of("t" * 400))
    assert used(PrefixCache(), tailed).uncached == 100


def test_the_least_recently_used_prefix_goes_first():
    cache = PrefixCache(max_entries=2)
    one, two, three = [Prefix(name, 2000) for name in (b"1", b"2", b"3")]
    for at_s, prefix in enumerate((one, two, one, three)):
        cache.use([prefix], 2000, start_s=at_s, first_byte_s=at_s)
    assert len(cache) == 2
    assert [cache.readable([prefix], at_s=9.0) for prefix in (one, two, three)] == [2000, 0, 2000]


def test_an_empty_request_uses_nothing():
    assert PrefixCache().use([], 0, start_s=0.0, first_byte_s=0.0) == CacheUse(0, 0, 0)


def test_the_repr_says_how_much_it_holds():
    assert repr(PrefixCache()) == "<PrefixCache of 0 prefixes>"


@given(drawn=st.lists(requests(), max_size=5), least=st.integers(0, 60))
def test_the_buckets_of_any_requests_add_up_to_their_input(drawn: list[Request], least: int):
    cache = PrefixCache(min_tokens=least)
    for at_s, asked in enumerate(drawn):
        prefixes, total = prefixes_of(asked)
        use = cache.use(prefixes, total, start_s=at_s, first_byte_s=at_s)
        assert min(use.read, use.write, use.uncached) >= 0
        assert use.read + use.write + use.uncached == total


@given(drawn=requests())
def test_a_request_sent_twice_reads_all_that_it_wrote(drawn: Request):
    cache = PrefixCache(min_tokens=0)
    first, second = used(cache, drawn), used(cache, drawn, 1.0)
    assert second == CacheUse(first.read + first.write, 0, first.uncached)


def test_messages_without_text_cost_no_less_than_nothing():
    prefixes, total = prefixes_of(Request("m", messages=(segment(Message("assistant")),)))
    assert [prefix.tokens for prefix in prefixes] == [total] == [0]


def test_a_message_that_is_not_sent_costs_nothing():
    orphaned = Request("m", messages=(segment(result("nobody", LONG), user("a"), user("b")),))
    prefixes, total = prefixes_of(orphaned)
    assert total < 100
    assert all(prefix.tokens <= total for prefix in prefixes)
