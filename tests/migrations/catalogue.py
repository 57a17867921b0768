"""Everything the catalogue knows about Tarry's schema, in a form that two databases can be compared by."""

from __future__ import annotations

from typing import Any, LiteralString

import psycopg

# Object ids, and numbers of columns that were dropped, are the only things two equal schemas may differ in.
_QUESTIONS: dict[str, LiteralString] = {
    "schema": "select nspname, nspacl::text from pg_namespace where nspname = 'tarry'",
    "tables and views": """
        select c.relname, c.relkind::text, c.relpersistence::text, c.relispartition, c.relreplident::text,
            c.relrowsecurity, c.relacl::text, array(select unnest(c.reloptions) order by 1),
            pg_get_partkeydef(c.oid), pg_get_expr(c.relpartbound, c.oid), i.inhparent::regclass::text
        from pg_class c left join pg_inherits i on i.inhrelid = c.oid
        where c.relnamespace = 'tarry'::regnamespace
    """,
    "columns": """
        select c.relname, row_number() over (partition by c.oid order by a.attnum), a.attname,
            format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity::text, a.attgenerated::text,
            a.attstorage::text, a.attcompression::text, a.attcollation::regcollation::text, a.attacl::text,
            pg_get_expr(d.adbin, d.adrelid)
        from pg_class c join pg_attribute a on a.attrelid = c.oid
        left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
        where c.relnamespace = 'tarry'::regnamespace and a.attnum > 0 and not a.attisdropped
          and c.relkind not in ('i', 'I')
    """,
    "constraints": """
        select conrelid::regclass::text, conname, contype::text, convalidated, condeferrable, conislocal, coninhcount,
            pg_get_constraintdef(oid)
        from pg_constraint where connamespace = 'tarry'::regnamespace
    """,
    "indexes": """
        select i.indexrelid::regclass::text, i.indisunique, i.indisprimary, i.indisvalid, i.indisready,
            pg_get_indexdef(i.indexrelid), c.relispartition
        from pg_index i join pg_class c on c.oid = i.indexrelid
        where c.relnamespace = 'tarry'::regnamespace
    """,
    "sequences": """
        select c.relname, s.seqtypid::regtype::text, s.seqstart, s.seqincrement, s.seqmin, s.seqmax, s.seqcache,
            s.seqcycle, pg_get_serial_sequence(d.refobjid::regclass::text, a.attname)
        from pg_class c join pg_sequence s on s.seqrelid = c.oid
        left join pg_depend d on d.objid = c.oid and d.classid = 'pg_class'::regclass and d.deptype in ('i', 'a')
        left join pg_attribute a on a.attrelid = d.refobjid and a.attnum = d.refobjsubid
        where c.relnamespace = 'tarry'::regnamespace
    """,
    "types": """
        select t.typname, t.typtype::text, t.typacl::text, format_type(nullif(t.typbasetype, 0), t.typtypmod), t.typcollation,
            array(select e.enumlabel::text from pg_enum e where e.enumtypid = t.oid order by e.enumsortorder)
        from pg_type t where t.typnamespace = 'tarry'::regnamespace
    """,
    "functions": """
        select p.proname, pg_get_function_arguments(p.oid), pg_get_function_result(p.oid), p.prokind::text,
            p.provolatile::text, p.proparallel::text, p.proisstrict, p.prosecdef, p.proleakproof, p.procost, p.prorows,
            p.proconfig, p.proacl::text, l.lanname, p.prosrc
        from pg_proc p join pg_language l on l.oid = p.prolang where p.pronamespace = 'tarry'::regnamespace
    """,
    "views": "select viewname, definition from pg_views where schemaname = 'tarry'",
    "triggers": """
        select tgrelid::regclass::text, pg_get_triggerdef(t.oid), tgenabled::text
        from pg_trigger t join pg_class c on c.oid = t.tgrelid
        where c.relnamespace = 'tarry'::regnamespace and not tgisinternal
    """,
    "statistics": "select stxname, stxkind::text from pg_statistic_ext where stxnamespace = 'tarry'::regnamespace",
    "comments": """
        select classoid::regclass::text, objsubid, description from pg_description
        where (classoid = 'pg_class'::regclass
               and objoid in (select oid from pg_class where relnamespace = 'tarry'::regnamespace))
           or (classoid = 'pg_proc'::regclass
               and objoid in (select oid from pg_proc where pronamespace = 'tarry'::regnamespace))
    """,
    "migrations": "select number, name, checksum from tarry.migration",
}


def described(conn: psycopg.Connection[Any]) -> dict[str, list[Any]]:
    """Each question with its answers in order; whatever the database's own collation is."""
    with conn.transaction(force_rollback=True):
        conn.execute("set local search_path to pg_catalog")
        return {topic: sorted(map(repr, conn.execute(query).fetchall())) for topic, query in _QUESTIONS.items()}
