from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('leasing', '0002_hot_path'),
    ]

    operations = [
        migrations.AddIndex(
            model_name='report',
            index=models.Index(fields=['target', 'id'], name='report_of_target'),
        ),
    ]
