#include "base/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

static json_t *
parse(const char *text)
{
    struct err err = ERR_INIT;
    json_t *value = json_parse(text, strlen(text), &err);
    if (!value)
        fail_msg("%s", err.msg);
    return value;
}

static void
test_parse_and_print(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    scope_json *value =
        parse(" { \"z\": 1, \"a\": [true, null, -2.5, \"x\\u00e9\\n\"],\n \"m\": {} } ");
    scope_buf out;
    buf_init(&out, 1000);
    assert_int_equal(buf_append_str(&out, ">", &err), 0);
    assert_int_equal(json_print(value, &out, &err), 0);
    assert_string_equal(out.data, ">{\"z\":1,\"a\":[true,null,-2.5,\"x\xc3\xa9\\n\"],\"m\":{}}");
}

static void
test_print_keeps_the_maximum(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    scope_json *value = parse("{\"key\":\"a value\"}");
    scope_buf out;
    buf_init(&out, 10);
    assert_int_equal(buf_append_str(&out, "old", &err), 0);
    assert_int_equal(json_print(value, &out, &err), -1);
    assert_int_equal(err.code, ERR_TOO_LARGE);
    assert_string_equal(out.data, "old");
}

static void
test_parse_refuses(void **state)
{
    (void)state;
    static const char *const bad[] = { "",
                                       "{",
                                       "{\"a\":1,}",
                                       "{\"a\":1} x",
                                       "[1 2]",
                                       "{'a':1}",
                                       "[\"\xff\"]",
                                       "{\"a\":1,\"a\":2}",
                                       "[\"\\u0000\"]",
                                       "nul",
                                       "[01]",
                                       "[9223372036854775808]" };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct err err = ERR_INIT;
        assert_null(json_parse(bad[i], strlen(bad[i]), &err));
        assert_int_equal(err.code, ERR_INVAL);
    }
    struct err err = ERR_INIT;
    assert_null(json_parse("{\n\n\"a\" 1}", 10, &err));
    assert_non_null(strstr(err.msg, "line 3"));
    assert_null(json_parse("{}", 1, &err));
}

static void
test_parse_limits(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    size_t len = LIMIT_JSON_DOC + 1;
    char *text = malloc(len);
    assert_non_null(text);
    memset(text, ' ', len);
    text[0] = '[';
    text[1] = ']';
    json_t *value = json_parse(text, len - 1, &err);
    assert_non_null(value);
    json_decref(value);
    assert_null(json_parse(text, len, &err));
    assert_int_equal(err.code, ERR_TOO_LARGE);
    memset(text, '[', len - 1); /* too deep: an error, not a full stack */
    assert_null(json_parse(text, len - 1, &err));
    assert_int_equal(err.code, ERR_INVAL);
    free(text);
}

static void
test_needed_fields(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    scope_json *value = parse("{\"s\":\"text\",\"i\":-7,\"n\":null,\"b\":true,\"r\":1.0}");
    const char *text = "old";
    int64_t number = 5;
    assert_int_equal(json_need_str(value, "s", &text, &err), 0);
    assert_string_equal(text, "text");
    assert_int_equal(json_need_int(value, "i", &number, &err), 0);
    assert_true(number == -7);
    assert_int_equal(json_need_str(value, "none", &text, &err), -1);
    assert_int_equal(err.code, ERR_INVAL);
    assert_string_equal(err.msg, "json: the field 'none' is missing");
    assert_int_equal(json_need_str(value, "i", &text, &err), -1);
    assert_string_equal(err.msg, "json: the field 'i' is not a string");
    assert_int_equal(json_need_str(value, "n", &text, &err), -1);
    assert_int_equal(json_need_int(value, "s", &number, &err), -1);
    assert_int_equal(json_need_int(value, "r", &number, &err), -1);
    assert_int_equal(json_need_int(value, "none", &number, &err), -1);
    assert_string_equal(text, "text");
    assert_true(number == -7);
}

static void
test_optional_fields(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    scope_json *value = parse("{\"s\":\"text\",\"i\":7,\"n\":null,\"b\":true,\"f\":false}");
    const char *text = "old";
    int64_t number = 5;
    bool truth = false;
    assert_int_equal(json_opt_str(value, "none", &text, &err), 0);
    assert_int_equal(json_opt_str(value, "n", &text, &err), 0);
    assert_string_equal(text, "old");
    assert_int_equal(json_opt_int(value, "none", &number, &err), 0);
    assert_int_equal(json_opt_int(value, "n", &number, &err), 0);
    assert_true(number == 5);
    assert_int_equal(json_opt_bool(value, "none", &truth, &err), 0);
    assert_false(truth);
    assert_int_equal(json_opt_bool(value, "b", &truth, &err), 0);
    assert_true(truth);
    assert_int_equal(json_opt_bool(value, "f", &truth, &err), 0);
    assert_false(truth);
    assert_int_equal(json_opt_str(value, "s", &text, &err), 0);
    assert_string_equal(text, "text");
    assert_int_equal(json_opt_int(value, "i", &number, &err), 0);
    assert_true(number == 7);
    assert_int_equal(json_opt_str(value, "i", &text, &err), -1);
    assert_int_equal(json_opt_int(value, "s", &number, &err), -1);
    assert_int_equal(json_opt_bool(value, "i", &truth, &err), -1);
    assert_int_equal(err.code, ERR_INVAL);
}

static void
test_not_an_object(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    scope_json *value = parse("[1]");
    const char *text;
    assert_int_equal(json_opt_str(value, "s", &text, &err), -1);
    assert_int_equal(err.code, ERR_INVAL);
    assert_int_equal(json_need_str(NULL, "s", &text, &err), -1);
}

static void
test_bytes(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    scope_json *value = json_array();
    json_array_append_new(value, json_bytes("caf\xc3\xa9", 5));
    json_array_append_new(value, json_bytes("a\xff\xe1\x80z", 5));
    json_array_append_new(value, json_bytes("", 0));
    json_array_append_new(value, json_bytes("a\0b", 3));
    scope_buf out;
    buf_init(&out, 1000);
    assert_int_equal(json_print(value, &out, &err), 0);
    assert_string_equal(
        out.data,
        "[\"caf\xc3\xa9\",\"a\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdz\",\"\",\"a\\u0000b\"]");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse_and_print), cmocka_unit_test(test_print_keeps_the_maximum),
        cmocka_unit_test(test_parse_refuses),   cmocka_unit_test(test_parse_limits),
        cmocka_unit_test(test_needed_fields),   cmocka_unit_test(test_optional_fields),
        cmocka_unit_test(test_not_an_object),   cmocka_unit_test(test_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
