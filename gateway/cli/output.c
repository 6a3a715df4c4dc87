#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/parse.h"
#include "gateway/cli/cli.h"

void
table_init(struct table *table, size_t columns)
{
    *table = (struct table){ .columns = columns };
}

static void
add_cell(struct table *table, char *cell)
{
    if (table->count == table->cap && !table->failed) {
        size_t cap = table->cap ? table->cap * 2 : 64;
        char **cells = realloc(table->cells, cap * sizeof(*cells));
        if (cells) {
            table->cells = cells;
            table->cap = cap;
        } else {
            table->failed = true;
        }
    }
    if (table->failed || !cell) {
        table->failed = true;
        free(cell);
        return;
    }
    table->cells[table->count++] = cell;
}

void
table_add(struct table *table, const char *text)
{
    char safe[LIMIT_PATH * 4 + 1];
    if (!text || text[0] == '\0')
        text = "-";
    (void)text_escape(text, strlen(text), safe, sizeof(safe));
    add_cell(table, strdup(safe));
}

void
format_size(uint64_t bytes, char out[16])
{
    static const char units[] = "KMGTP";
    double value = (double)bytes;
    int unit = -1;
    while (value >= 1024 && unit < 4) {
        value /= 1024;
        unit++;
    }
    if (unit < 0)
        (void)snprintf(out, 16, "%llu", (unsigned long long)bytes);
    else
        (void)snprintf(out, 16, "%.1f%c", value, units[unit]);
}

void
table_add_size(struct table *table, int64_t bytes)
{
    char text[16];
    format_size((uint64_t)bytes, text);
    table_add(table, text);
}

/* Columns by characters, not bytes: continuation bytes of UTF-8 take no place. */
static size_t
width_of(const char *text)
{
    size_t width = 0;
    for (; *text != '\0'; text++)
        width += ((unsigned char)*text & 0xc0) != 0x80;
    return width;
}

static void
print_row(const struct table *table, size_t row, const size_t *widths)
{
    for (size_t c = 0; c < table->columns; c++) {
        const char *cell = table->cells[row * table->columns + c];
        (void)fputs(cell, stdout);
        if (c + 1 == table->columns)
            break;
        for (size_t i = width_of(cell); i < widths[c] + 2; i++)
            (void)fputc(' ', stdout);
    }
    (void)fputc('\n', stdout);
}

void
table_print(struct table *table)
{
    size_t widths[TABLE_COLUMNS] = { 0 };
    size_t rows = table->count / table->columns;
    for (size_t i = 0; i < rows * table->columns; i++) {
        size_t width = width_of(table->cells[i]);
        if (width > widths[i % table->columns])
            widths[i % table->columns] = width;
    }
    for (size_t row = 0; row < rows; row++)
        print_row(table, row, widths);
    for (size_t i = 0; i < table->count; i++)
        free(table->cells[i]);
    free(table->cells);
    table_init(table, table->columns);
}

int
print_json(const json_t *value, struct err *err)
{
    scope_buf text;
    buf_init(&text, 64u << 20);
    if (json_print(value, &text, err) < 0)
        return -1;
    (void)printf("%s\n", buf_cstr(&text));
    return 0;
}

void
print_line(const char *fmt, ...)
{
    char line[8192];
    char safe[8192];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    (void)text_escape(line, strlen(line), safe, sizeof(safe));
    (void)printf("%s\n", safe);
}

void
format_local(const char *rfc3339, char out[20])
{
    int64_t ns;
    struct tm tm;
    time_t seconds;
    (void)snprintf(out, 20, "-");
    if (time_parse_rfc3339(rfc3339, &ns) < 0)
        return;
    seconds = (time_t)(ns / NS_PER_S - (ns % NS_PER_S < 0));
    if (localtime_r(&seconds, &tm))
        (void)strftime(out, 20, "%Y-%m-%d %H:%M:%S", &tm);
}

const char *
get_bytes(const json_t *object, const char *name, char *out, size_t size)
{
    char field[32];
    (void)snprintf(field, sizeof(field), "%s_hex", name);
    const char *hex = get_text(object, field);
    size_t len = strlen(hex) / 2;
    if (len == 0 || len >= size || !hex_decode(hex, 2 * len, out, len))
        return get_text(object, name);
    out[len] = '\0';
    return out;
}

const char *
get_text(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "";
}

int64_t
get_int(const json_t *object, const char *name)
{
    return json_integer_value(json_object_get(object, name));
}

bool
get_bool(const json_t *object, const char *name)
{
    return json_is_true(json_object_get(object, name));
}

void
print_text(const char *head, const char *text, size_t len)
{
    char safe[4096];
    bool terminal = isatty(STDOUT_FILENO) == 1;
    (void)text_escape(head, strlen(head), safe, sizeof(safe));
    (void)fputs(safe, stdout);
    if (!terminal)
        (void)fwrite(text, 1, len, stdout);
    while (terminal && len > 0) {
        const char *tab = memchr(text, '\t', len);
        size_t part = tab ? (size_t)(tab - text) : len;
        part = part < sizeof(safe) / 4 - 1 ? part : sizeof(safe) / 4 - 1;
        (void)text_escape(text, part, safe, sizeof(safe));
        (void)fputs(safe, stdout);
        text += part;
        len -= part;
        if (len > 0 && *text == '\t') {
            (void)fputc('\t', stdout);
            text++;
            len--;
        }
    }
    (void)fputc('\n', stdout);
}
