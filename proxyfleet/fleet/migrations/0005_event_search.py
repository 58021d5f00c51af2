from django.contrib.postgres.indexes import GinIndex
from django.contrib.postgres.operations import TrigramExtension
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('fleet', '0004_skip_cleanup_withdrawn'),
    ]

    operations = [
        # A trusted extension: whoever owns the database may create it.
        TrigramExtension(),
        migrations.AddIndex(
            model_name='proxyevent',
            index=models.Index(fields=['kind', 'id'], name='event_of_kind'),
        ),
        migrations.AddIndex(
            model_name='proxyevent',
            index=GinIndex(fields=['name'], name='event_name_part', opclasses=['gin_trgm_ops']),
        ),
    ]
