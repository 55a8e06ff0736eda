"""Results and reports reach code as what they are, not as a text about it."""

from __future__ import annotations

import msgspec

from cadre.protocol.code import CodeReply
from unit.loop.build import report, result
from unit.loop.test_code import asks, begun, code_call, yielded


def test_a_cut_result_says_what_its_blob_holds() -> None:
    course = begun()
    course.arrive(yielded(asks("add", a=1, b=2)))
    course.arrive(result("r1_1_0", "[1, …", blob="blob:x", blob_form="json"))
    wanted = CodeReply(value="[1, …", blob="blob:x", blob_form="json")
    assert code_call(course).exchanges[0].replies == [wanted]


def test_a_report_with_more_than_json_reaches_code_as_it_is() -> None:
    picture = {"$given": ["image", "blob:" + "0" * 64]}
    for output, text in (([picture], "A picture."), (["words"], "Words.")):
        course = begun()
        course.arrive(yielded(asks("kid", task="Draw.")))
        told = msgspec.structs.replace(report("r1_1_0", text), output=output)
        course.arrive(told)
        value = output if picture in output else text
        assert code_call(course).exchanges[0].replies == [CodeReply(value=value)]
